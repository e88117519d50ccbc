"""Whether an answer is what the table says that it is: every key that it has declared, every declared one there."""

from functools import cache

from jsonschema import Draft202012Validator

from mase_server.daemon.api import API


def checked(method, answer):
    """The answer, if it fits the declared result; a key that nobody declared fits nowhere."""
    if (validator := _validators().get(method)) is not None:
        found = [f"{error.json_path}: {error.message[:300]}" for error in validator.iter_errors(plain(answer))]
        assert not found, f"{method} does not answer as declared in mase_server/protocol/answers: {found}"
    return answer


@cache
def _validators():
    return {method.name: Draft202012Validator(closed(method.described()["result"])) for method in API}


def closed(schema):
    """A schema whose objects have no further keys."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(each) for key, each in schema.items()}
    return made | ({"additionalProperties": False} if isinstance(schema.get("properties"), dict) else {})


def plain(value):
    """Bytes as text, which JSON has in their place."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value.decode("latin-1") if isinstance(value, bytes) else value
