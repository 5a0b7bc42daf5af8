"""The OpenAPI description: FastAPI's description of the routes, with the refusals that all share.

FastAPI promises a 422 for any input of a route. Here malformed input is answered with 400, as in
Pulsar, and only if a route has input that can be malformed.
"""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI

from anabranch.broker.http.models.cluster import Problem

PROBLEM: Final = {
    "application/json": {"schema": {"$ref": f"#/components/schemas/{Problem.__name__}"}}
}
_TEXT: Final = ("string", "array", "null")  # any text is of these forms
_FORMS: Final = ("HTTPValidationError", "ValidationError")


def describe(api: FastAPI) -> None:
    """Makes the application describe itself as it answers."""
    made = api.openapi

    def openapi() -> dict[str, Any]:
        if api.openapi_schema is not None:
            return api.openapi_schema
        found = made()  # the application keeps it
        for path in found["paths"].values():
            for operation in path.values():
                _answers(operation)
        _correct_forms(found)
        return found

    api.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation has it


def _answers(operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    responses.pop("422", None)
    takes_body = "requestBody" in operation
    asked = [each for each in operation.get("parameters", ()) if each["in"] == "query"]
    if takes_body or any(_can_be_wrong(each) for each in asked):
        _add(responses, "400", "The body or a query parameter is missing or not of its form.")
    if takes_body:
        _add(responses, "413", "The body is larger than httpMaxRequestSize, or than this can need.")
        _add(responses, "415", "The body is not sent as application/json.")
    operation["responses"] = dict(sorted(responses.items()))


def _add(responses: dict[str, Any], status: str, why: str) -> None:
    responses.setdefault(status, {"description": why, "content": PROBLEM})


def _can_be_wrong(parameter: dict[str, Any]) -> bool:
    schema = parameter["schema"]
    forms = [each.get("type", "string") for each in schema.get("anyOf", (schema,))]
    return bool(parameter.get("required")) or any(form not in _TEXT for form in forms)


def _correct_forms(description: dict[str, Any]) -> None:
    components = description.setdefault("components", {})
    forms = {**components.get("schemas", {}), Problem.__name__: Problem.model_json_schema()}
    components["schemas"] = {name: forms[name] for name in sorted(forms) if name not in _FORMS}
