"`python -m annotated_transformer`, the same as the command `annotated-transformer`."
from .commands.cli import main

main()
