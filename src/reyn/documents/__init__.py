"""Files that users write: read them, parse YAML and JSON with positions, and check their values."""

from reyn.documents.checking import *  # noqa: F403 - one namespace for the functions of every module
from reyn.documents.document import *  # noqa: F403
from reyn.documents.json_text import *  # noqa: F403
from reyn.documents.trust_classes import *  # noqa: F403
from reyn.documents.unicode_forms import *  # noqa: F403
from reyn.documents.yaml_scalars import *  # noqa: F403
from reyn.documents.yaml_text import *  # noqa: F403
