"""The gateway's resources as an OpenAPI 3.1 document."""

from __future__ import annotations

from typing import Any

from penrose_ray import __version__
from penrose_ray.wire import RECORD_BYTES

_PROBLEM = "application/problem+json"
_BYTES = "application/octet-stream"


def document(task_id: str = "", *, most_reports: int = 1000) -> dict[str, Any]:
    """The document; with `task_id` that task is the only one that it names."""
    task: dict[str, Any] = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
    parameter = {
        "name": "task",
        "in": "path",
        "required": True,
        "description": "SHA-256 of the task's canonical encoding, hexadecimal.",
        "schema": {**task, "enum": [task_id]} if task_id else task,
    }
    no_task = {"404": _problem("This service has no such task.")}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "penrose-ray gateway",
            "version": __version__,
            "description": "Takes sealed reports. Every refusal is a problem of RFC 9457 with a remedy.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {
            "/tasks/{task}": {
                "parameters": [parameter],
                "get": _get(
                    "task", "The signed task.", _binary("Canonical encoding and signature."), no_task
                ),
            },
            "/tasks/{task}/quote": {
                "parameters": [parameter],
                "get": _get("quote", "The machine's TPM quote.", _binary("The quote, or nothing."), no_task),
            },
            "/tasks/{task}/reports": {"parameters": [parameter], "post": _reports(most_reports)},
            "/health": {
                "get": _get("health", "Whether the gateway runs.", _json("It does.", "Health")),
            },
            "/ready": {
                "get": _get(
                    "ready",
                    "Whether matcher, directory and all shards answer.",
                    _json("They do; and the gateways that listen.", "Ready"),
                    {"503": _problem("Some do not; the detail names them.", pause=True)},
                ),
            },
            "/metrics": {
                "get": _get(
                    "metrics",
                    "What the service has counted, for Prometheus.",
                    {
                        "description": "Text format 0.0.4.",
                        "content": {"text/plain": {"schema": {"type": "string"}}},
                    },
                    {
                        "401": _problem("The service has a token for this page; it was not sent as Bearer."),
                        "403": _problem("The service has no token for this page, and others reach it."),
                    },
                ),
            },
            "/openapi.json": {
                "get": _get("openapi", "This document.", _json("OpenAPI 3.1.", "Document")),
            },
        },
        "components": {"schemas": _schemas(task)},
    }


def _reports(most_reports: int) -> dict[str, Any]:
    return {
        "operationId": "reports",
        "summary": "Send reports; the same bytes again count once.",
        "requestBody": {
            "required": True,
            "description": f"1 to {most_reports} records of {RECORD_BYTES} bytes each, not compressed.",
            "content": {_BYTES: {"schema": {"type": "string", "format": "binary"}}},
        },
        "responses": {
            "200": _json("What became of each report.", "Receipt"),
            "400": _problem("The body is none, or its only report is refused for good."),
            "404": _problem("The task, or the report's task, is not served here."),
            "408": _problem("The body did not come in time."),
            "413": _problem("The body is too large."),
            "415": _problem("The body is compressed."),
            "429": _problem("There is more work than the service can take, or its disk is full.", pause=True),
            "503": _problem("A part of the service restarts.", pause=True),
            "507": _problem("The sum holds all that it can; its batch must be released first."),
        },
    }


def _get(
    name: str, summary: str, answer: dict[str, Any], others: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {"operationId": name, "summary": summary, "responses": {"200": answer, **(others or {})}}


def _binary(text: str) -> dict[str, Any]:
    return {"description": text, "content": {_BYTES: {"schema": {"type": "string", "format": "binary"}}}}


def _json(text: str, schema: str) -> dict[str, Any]:
    return {
        "description": text,
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}},
    }


def _problem(text: str, *, pause: bool = False) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "description": text,
        "content": {_PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    if pause:
        seconds = {
            "description": "Seconds to wait.",
            "required": True,
            "schema": {"type": "integer", "minimum": 1},
        }
        answer["headers"] = {"Retry-After": seconds}
    return answer


def _schemas(task: dict[str, Any]) -> dict[str, Any]:
    text = {"type": "string"}
    count = {"type": "integer", "minimum": 0}
    refusal = _object(index=count, code=text, detail=text)
    return {
        "Problem": _object(type=text, title=text, status={"type": "integer"}, detail=text, remedy=text),
        "Receipt": _object(accepted=count, refused={"type": "array", "items": refusal}),
        "Health": _object(status={"const": "ok"}, task=task),
        "Ready": _object(ready={"const": True}, gateways={"type": "array", "items": text}),
        "Document": {"type": "object"},
    }


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
