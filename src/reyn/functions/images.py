"""Images in messages: read a file, and check an image before it is sent."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from urllib.parse import urlsplit

from reyn.errors import ImageInvalid
from reyn.models import Image

_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"BM": "image/bmp",
}
_MAX_BYTES = 20_000_000


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
    if image.data:
        try:
            content = base64.b64decode(image.data, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ImageInvalid(f"the data of an image is not base64: {error}") from error
        if not content or not image.media_type.startswith("image/"):
            raise ImageInvalid(f"an image has the media type {image.media_type!r:.100}")
    elif urlsplit(image.url).scheme not in ("http", "https"):
        raise ImageInvalid(f"an image has neither data nor an http address: {image.url!r:.200}")
