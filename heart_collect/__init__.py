"""HEART in the open: whatever calls a model or asks a person.

``__init__.pyi`` lists the public names. Each is loaded from its module on first use. The package
comes with the extra ``collect``; it imports ``heart_utils``, never the other way round.

Examples
--------
>>> import heart_collect
>>> heart_collect.read_recipe("sample").seed
20260109
"""

import lazy_loader

from heart_utils import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
