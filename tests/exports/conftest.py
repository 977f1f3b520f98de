"No checker of annotations here: PyTorch's exporter hands the core lengths that are symbols."
from checking import unchecked  # noqa: F401
