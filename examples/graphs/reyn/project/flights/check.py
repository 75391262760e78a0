def was_offered(artifact: dict) -> None:
    chosen = {"number": artifact["data"]["number"], "price": artifact["data"]["price"]}
    if chosen not in artifact["state"]["offers"]["flights"]:
        raise ValueError("no flight " + chosen["number"] + " was offered at this price")
