def withdraw(artifact: dict) -> float:
    return artifact["data"]["balance"] - artifact["data"]["amount"]


def deposit(artifact: dict) -> bool:
    return artifact["data"]["is_open"]


def refund(artifact: dict) -> float:
    return artifact["data"]["left"] + artifact["data"]["amount"]
