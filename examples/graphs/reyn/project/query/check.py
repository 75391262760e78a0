COLUMNS = {"id", "customer", "total", "day"}


def reads_only(artifact: dict) -> None:
    words = artifact["data"]["text"].lower().replace(",", " ").replace(";", " ; ").split()
    if words[:1] != ["select"] or ";" in words:
        raise ValueError("write one SELECT without a semicolon")
    if "from" not in words or words[words.index("from") + 1 :][:1] != ["orders"]:
        raise ValueError("read from the table `orders`")
    unknown = set(words[1 : words.index("from")]) - COLUMNS - {"*"}
    if unknown:
        raise ValueError("unknown columns: " + ", ".join(sorted(unknown)))
