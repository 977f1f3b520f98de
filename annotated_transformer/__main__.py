"`python -m annotated_transformer`, the same as the command `annotated-transformer`."
import sys

if not hasattr(sys.modules[__package__], "__version__"):  # a folder of this name in the working directory came first
    del sys.modules[__package__], sys.path[0]
from annotated_transformer.commands.cli import main

main()
