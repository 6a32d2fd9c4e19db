"""HEART in the open: ratings, agreement and evidence on emotional support by people and models.

``__init__.pyi`` lists the public names. Each is loaded from its module on first use, so that
importing the package costs next to nothing.

Examples
--------
>>> import heart_utils
>>> heart_utils.open_run("sample").name
'sample'
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
