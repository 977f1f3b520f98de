"No checker of annotations here: experiments put modules of their own into the core's places."
from checking import unchecked  # noqa: F401
