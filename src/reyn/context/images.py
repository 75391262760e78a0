"""The images of messages: their content for models that read images, a description for others."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from reyn.context.messages import RESULTS_PARTS, NormalizedMessage
from reyn.context.transcript import NormalizedMessageList
from reyn.journal.kinds import FrameMessage, ImageRef, Part
from reyn.models import Image


def without_images(messages: NormalizedMessageList) -> NormalizedMessageList:
    """Return messages with their texts, with a description in the place of each image."""
    if not messages.has_images:
        return messages
    return NormalizedMessageList(described(message) if message.images else message for message in messages)


def described(message: NormalizedMessage) -> NormalizedMessage:
    """Return a message with a description in the place of each image."""
    text = "".join(image_text(image.media_type or image.url) for image in message.images)
    return replace(message, text=message.text + text, images=())


def image_text(name: str) -> str:
    """Return what a model that reads no images sees of one."""
    return f"\n[image: {name}]"


def images_in(
    message: FrameMessage | NormalizedMessage, content: Callable[[str], bytes], results: Sequence[str] = ()
) -> tuple[Image, ...]:
    """Return the images of a message: its own, and those that op results in it name by hash.

    Only messages of tools and the results of a turn are looked at: an input cannot name content of the journal.
    """
    own = [part.image for part in message.parts if part.image is not None]
    images = [_to_image(_ResultImage(one.media_type, one.content or "", one.url), content) for one in own]
    names = [name for part in message.parts if part.results for name in results[: part.results]]
    if not own and (message.role == "tool" or message.parts[:1] == RESULTS_PARTS):
        names += [part.blob for part in message.parts if part.blob]
    for raw in map(content, names):
        if b'"images":[{' in raw:
            with suppress(msgspec.MsgspecError):  # a truncated result, or one that only quotes the key
                images += [_to_image(image, content) for image in msgspec.json.decode(raw, type=_WithImages).images]
    return tuple(images)


def image_parts(result: bytes) -> tuple[Part, ...]:
    """Return the images that an op result names by hash, as parts of its message."""
    if b'"images":[{' not in result:
        return ()
    try:
        images = msgspec.json.decode(result, type=_WithImages).images
    except msgspec.MsgspecError:  # a truncated result, or one that only quotes the key
        return ()
    return tuple(Part(image=ImageRef(one.media_type, one.content or None, one.url)) for one in images)


class _ResultImage(msgspec.Struct):
    media_type: str = ""
    content: str = ""
    url: str = ""


class _WithImages(msgspec.Struct):
    images: tuple[_ResultImage, ...] = ()


def _to_image(image: _ResultImage, content: Callable[[str], bytes]) -> Image:
    if not image.content:
        return Image(url=image.url)
    return Image(image.media_type, base64.b64encode(content(image.content)).decode())
