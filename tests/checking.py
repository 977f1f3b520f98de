"""What checks the annotations of the core as its tests run (jaxtyping's plugin asks for it by name): an int is a
float, too."""
from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
