"""The JSON Schema of specs, for editors and for other tools."""

from __future__ import annotations

from typing import Any

from kgen.spec.models import Spec


def json_schema() -> dict[str, Any]:
    """What `kgen schema` prints; names are checked further by `check_spec`, which a schema can't express."""
    schema = Spec.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "kgen op spec"
    return schema
