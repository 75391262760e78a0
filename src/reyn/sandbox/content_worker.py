"""The program that converts hostile pages to Markdown: a worker process with limits, which its parent kills in time.

It is executed as a script: `content_worker.py MEMORY_BYTES FOLDER…`, the folders of the libraries. Each request is a
line of JSON (`url`, `depth`, `seconds`, `size`, `most`) and `size` bytes of UTF-8; each answer a line of JSON
(`error`, `title`, `size`, `truncated`) and `size` bytes. It ends with its input.
"""

from __future__ import annotations

import json
import resource
import sys
from contextlib import suppress
from typing import Any


def main() -> None:
    memory = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.path += sys.argv[2:]
    source, target = sys.stdin.buffer, sys.stdout.buffer
    while line := source.readline():
        request = json.loads(line)
        limit_cpu(request["seconds"])
        answer, text = convert(source.read(request["size"]).decode("utf-8", "replace"), request)
        target.write(json.dumps(answer | {"size": len(text)}).encode() + b"\n" + text)
        target.flush()


def limit_cpu(seconds: float) -> None:
    """End this process after so many seconds of CPU time, also if its parent was killed."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(usage.ru_utime + usage.ru_stime + seconds) + 2, hard))


def convert(html: str, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Convert HTML without scripts, navigation, forms and hidden elements, in which instructions may be planted."""
    try:
        import html_to_markdown as converter

        options = converter.ConversionOptions(
            preprocessing=converter.PreprocessingOptions(),
            base_url=request["url"],
            extract_metadata=True,
            hidden_content="drop",
            inline_data_media="alt_text_only",
            max_depth=request["depth"],
        )
        result = converter.convert(html, options)
    except Exception as error:  # noqa: BLE001 - becomes the answer
        return {"error": type(error).__name__}, b""
    title = getattr(getattr(result.metadata, "document", None), "title", None) or ""
    text = without_front_matter(result.content or "")
    answer = {"title": str(title)[:1_000], "truncated": len(text) > request["most"]}
    return answer, text[: request["most"]].encode("utf-8", "replace")


def without_front_matter(text: str) -> str:
    if not text.startswith("---\n"):
        return text
    end = text.find("\n---\n", 4)
    return text[end + 5 :].lstrip("\n") if end >= 0 else text


if __name__ == "__main__":
    with suppress(BrokenPipeError, KeyboardInterrupt):
        main()
