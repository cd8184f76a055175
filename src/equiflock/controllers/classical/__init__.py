"""Classical control laws, one file each. All files of this folder are imported, which registers them."""

from equiflock._runtime.imports import import_submodules

import_submodules(__name__, __path__)
