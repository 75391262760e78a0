"""Images in messages and tool results: read a file, check an image, find images in a value."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import urlsplit

from reyn.errors import ImageInvalid, surrogate_fault
from reyn.jsonschema.references import map_subschemas
from reyn.models import Image

if TYPE_CHECKING:
    from reyn.ops import Env

_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"BM": "image/bmp",
}
_MAX_BYTES = 20_000_000
IMAGES = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "media_type": {"type": "string"},
            "bytes": {"type": "integer"},
            "content": {"type": "string"},
            "url": {"type": "string"},
        },
    },
}
"""The schema of the images in the result of a tool."""


def load_image(path: str | Path) -> Image:
    """Read an image file: PNG, JPEG, GIF, BMP or WebP.

    Raises:
        ImageInvalid: The file does not exist, cannot be read, is too large or is no image.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ImageInvalid(f"cannot read the image `{path}`: {error.strerror or error}") from error
    if len(content) > _MAX_BYTES:
        raise ImageInvalid(f"the image `{path}` is larger than {_MAX_BYTES} bytes")
    media_type = next((kind for start, kind in _SIGNATURES.items() if content.startswith(start)), None)
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        media_type = "image/webp"
    if media_type is None:
        raise ImageInvalid(f"the file `{path}` is not an image", hint="Use PNG, JPEG, GIF, BMP or WebP.")
    return Image(media_type, base64.b64encode(content).decode())


def check_image(image: Image) -> None:
    """Check that an image has content, or an address that a provider can fetch.

    Raises:
        ImageInvalid: It has not.
    """
    if fault := surrogate_fault(image.url + image.media_type):
        raise ImageInvalid(f"an image has an address or a media type with {fault}")
    if image.data:
        if not _content(image) or not image.media_type.startswith("image/"):
            raise ImageInvalid(f"an image has the media type {image.media_type!r:.100}")
    elif urlsplit(image.url).scheme not in ("http", "https"):
        raise ImageInvalid(f"an image has neither data nor an http address: {image.url!r:.200}")


def _content(image: Image) -> bytes:
    try:
        return base64.b64decode(image.data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ImageInvalid(f"the data of an image is not base64: {error}") from error


def attach_image(image: Image, env: Env) -> dict[str, Any]:
    """Store the content of an image that a tool returned; return its description for the result.

    Raises:
        ImageInvalid: It has neither content nor an address.
    """
    if image.url and not image.data:
        return {"url": image.url}
    content = _content(image)
    if not content:
        raise ImageInvalid("it has neither data nor a URL")
    hashed = env.attachments.add(content)
    return {"media_type": image.media_type or "image/png", "bytes": len(content), "content": hashed}


def mentions_image(annotation: Any) -> bool:
    """Return whether a type is `Image` or has it as an argument."""
    return annotation is Image or any(mentions_image(part) for part in get_args(annotation))


NAME_OF_IMAGE = {"type": "string", "description": "the name of an image that comes with the input"}
"""The schema of an image in the arguments of a function."""


def name_images(schema: Any) -> Any:
    """Return the schema of arguments as a run records them: a name in the place of each image."""
    if not isinstance(schema, dict):
        return schema
    return NAME_OF_IMAGE if _fields(schema.get("properties")) == _FIELDS else map_subschemas(schema, name_images)


def take_images(value: Any, images: list[Image]) -> Any:
    """Return arguments as JSON with names in the place of images, which are added to a list."""
    if isinstance(value, list):
        return [take_images(item, images) for item in value]
    if not isinstance(value, dict):
        return value
    if _fields(value) != _FIELDS or not all(isinstance(field, str) for field in value.values()):
        return {name: take_images(item, images) for name, item in value.items()}
    image = Image(**value)
    check_image(image)
    images.append(image)
    return f"image {len(images)} ({image.media_type if image.data else image.url})"


def has_image(value: Any) -> bool:
    """Return whether a value is an image, or a list, a tuple or a dict with one."""
    values = value.values() if isinstance(value, dict) else value
    return isinstance(value, Image) or (isinstance(value, list | tuple | dict) and any(map(has_image, values)))


_FIELDS = frozenset(Image.__struct_fields__)


def _fields(value: Any) -> frozenset[str]:
    return frozenset(value) if isinstance(value, dict) else frozenset()


def split_images(value: Any) -> tuple[Any, list[Image]]:
    """Return the value without its images, and the images: an image, a list of them, or text and images in a tuple."""
    if isinstance(value, Image):
        return None, [value]
    items: list[Any] = []
    for item in value if isinstance(value, list | tuple) else ():
        items += item if isinstance(item, list) and item and isinstance(item[0], Image) else [item]
    images = [item for item in items if isinstance(item, Image)]
    if not images:
        return value, []
    rest = [item for item in items if not isinstance(item, Image)]
    return (rest[0] if len(rest) == 1 else rest or None), images
