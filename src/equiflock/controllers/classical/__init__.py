"""Control laws that were written down, not learned: one file each, registered because it is here."""

from equiflock.runtime.discovery import import_all

import_all(__name__, __path__)
