"""How annotations are enforced while tests run: as Python's typing has it, an int will do where a float is declared."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
