"""The request: one frozen model of the body, and the strict way from bytes to it (contract, sections 2 and 7).

The body follows OpenAI's chat completions; `structured_outputs` is named as vLLM names it. A `null` in an optional
field means that the field is absent; a field that is not listed here is refused.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from schemas.errors import refused, shown
from schemas.refusals import first_refusal, misfit, nested
from schemas.strict_json import parse_json

TOKEN_LIMIT_NAMES = ("max_new_tokens", "max_tokens", "max_completion_tokens")
"""Three names of one field; a request may use one of them."""


def _whole(value: object) -> object:
    """JSON has one kind of number: `256.0` is the integer 256."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _one_or_more(value: object) -> object:
    if not isinstance(value, str | list | tuple):
        raise misfit("a string or a list of strings")
    return (value,) if isinstance(value, str) else value


def _json_schema_body(value: object) -> object:
    if not isinstance(value, dict | bool):
        raise misfit("a JSON schema: an object, true or false")
    return value


_Whole = Annotated[int, BeforeValidator(_whole)]
_Seed = Annotated[int, Field(ge=0, le=2**63 - 1), BeforeValidator(_whole)]
_Labels = Annotated[tuple[str, ...], Field(strict=False, min_length=2, max_length=256)]
_StopString = Annotated[str, Field(min_length=1, max_length=256)]
_StopStrings = Annotated[
    tuple[_StopString, ...],
    Field(strict=False, max_length=8),
    BeforeValidator(
        _one_or_more, json_schema_input_type=_StopString | Annotated[list[_StopString], Field(max_length=8)]
    ),
]
_SchemaBody = Annotated[
    Mapping[str, Any] | bool,
    PlainValidator(_json_schema_body),
    WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "boolean"}]}),
]


def _describe(schema: dict[str, Any], model: type["WireModel"]) -> None:
    """Put into the JSON schema what pydantic does not know: every name of a field, and that null means absent."""
    properties = schema["properties"]
    for field in model.model_fields.values():
        if isinstance(field.validation_alias, AliasChoices):
            first, *others = map(str, field.validation_alias.choices)
            properties |= {name: properties[first] | {"description": f"another name of {first}"} for name in others}
    for name, required in model.names().items():
        if not required and {"type": "null"} not in properties[name].get("anyOf", []):
            field_schema = dict(properties[name])
            said = {key: field_schema.pop(key) for key in ("description", "default") if key in field_schema}
            properties[name] = {"anyOf": [field_schema, {"type": "null"}], **said}


class WireModel(BaseModel):
    """An object of a request: frozen, strict about types, refusing unknown fields, reading `null` as absent.

    A strict model takes no list for a tuple, unless the field says so with `strict=False`.
    """

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, json_schema_extra=_describe
    )

    @model_validator(mode="before")
    @classmethod
    def _only_known_fields(cls, data: object) -> object:
        """Refuse an unknown field with the list of the known ones; drop the optional ones that are null."""
        if not isinstance(data, dict):
            return data
        required = cls.names()
        for name in data:
            if name not in required:
                raise misfit(f"one of {', '.join(required)}", at=(name,), got="an unknown field")
        return {name: value for name, value in data.items() if value is not None or required[name]}

    @classmethod
    def names(cls) -> dict[str, bool]:
        """Every name that a body may use, and whether it must."""
        names: dict[str, bool] = {}
        for name, field in cls.model_fields.items():
            alias = field.validation_alias
            choices = alias.choices if isinstance(alias, AliasChoices) else [alias or name]
            names |= {str(choice): field.is_required() for choice in choices}
        return names


class TextPart(WireModel):
    """One part of a message's content, as OpenAI shapes it; parts are joined without a separator."""

    type: Literal["text"]
    text: str


def _joined(value: object) -> object:
    """Join OpenAI's list of text parts."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise misfit("a string or a list of text parts")
    texts = []
    for index, part in enumerate(value):
        try:
            texts.append(TextPart.model_validate(part).text)
        except ValidationError as error:
            raise nested(error, index, part) from error
    return "".join(texts)


class ChatMessage(WireModel):
    """One turn of the conversation. Empty content is text; a list of text parts is joined."""

    role: Literal["system", "user", "assistant"]
    content: Annotated[
        str,
        BeforeValidator(_joined, json_schema_input_type=str | list[TextPart]),
        Field(description="a string, or a list of text parts that are joined"),
    ]


class JsonSchemaFormat(WireModel):
    """OpenAI's `json_schema` object. `strict` is accepted; the answer follows the schema either way."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$", description="a label for the schema")
    description: str | None = None
    schema_: _SchemaBody = Field(alias="schema", description="the JSON schema, kept as plain JSON")
    strict: bool | None = None


class ResponseFormat(WireModel):
    """OpenAI's `response_format`: free text, any JSON object, or JSON after a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None

    @model_validator(mode="after")
    def _schema_where_it_belongs(self) -> Self:
        if self.type == "json_schema" and self.json_schema is None:
            raise misfit('an object beside "type": "json_schema"', at=("json_schema",))
        if self.type != "json_schema" and self.json_schema is not None:
            raise misfit(f"no such field beside {shown(self.type)}", at=("json_schema",))
        return self


class StructuredOutputs(WireModel):
    """vLLM's `structured_outputs`: one of the labels `choice`, or text that matches `regex` in full."""

    choice: _Labels | None = Field(None, description="labels, all different")
    regex: str | None = Field(None, description="a regular expression in llguidance's dialect")

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.choice is None) == (self.regex is None):
            raise misfit("exactly one of choice, regex")
        if self.choice is not None and len(set(self.choice)) < len(self.choice):
            raise misfit("labels that all differ", at=("choice",))
        return self


class ChatRequest(WireModel):
    """The body of a request, checked. `timeout` is in seconds, the token counts are of the model's tokens.

    `stop` is empty where no stop string is given. Whether `model` is the served one and whether a pattern or a
    schema can be compiled is the daemon's to say.
    """

    messages: tuple[ChatMessage, ...] = Field(
        strict=False, min_length=1, description="the conversation; a last message of the assistant is continued"
    )
    model: str | None = Field(None, description="the served model's id; default: the served model")
    max_new_tokens: _Whole = Field(
        256,
        ge=1,
        le=2048,
        validation_alias=AliasChoices(*TOKEN_LIMIT_NAMES),
        description="most tokens to generate, the end token included",
    )
    temperature: float = Field(0.7, ge=0, le=2, description="0 and anything below 1e-5 is greedy")
    top_p: float = Field(0.95, gt=0, le=1, description="1 is off")
    top_k: _Whole = Field(0, ge=0, description="0 is off")
    seed: _Seed | None = Field(None, description="same seed, same model, same settings: same text")
    stop: _StopStrings = Field((), description="a string, or a list of strings, that end the answer")
    stream: bool = Field(False, description="send chunks before the final message")
    timeout: float = Field(300.0, gt=0, description="seconds for everything; default and limit: LEVERET_MAX_SECONDS")
    response_format: ResponseFormat | None = Field(None, description="what form the answer has; default: text")
    structured_outputs: StructuredOutputs | None = Field(None, description="not together with response_format")
    logprobs: bool = Field(False, description="give the log-probability of every token")
    top_logprobs: _Whole = Field(0, ge=0, le=20, description="needs logprobs")

    @model_validator(mode="before")
    @classmethod
    def _one_token_limit(cls, data: object) -> object:
        names = [name for name in TOKEN_LIMIT_NAMES if isinstance(data, dict) and data.get(name) is not None]
        if len(names) > 1:
            raise misfit(f"only one of {', '.join(TOKEN_LIMIT_NAMES)}", at=(names[1],))
        return data

    @model_validator(mode="after")
    def _fields_fit_together(self) -> Self:
        if self.structured_outputs is not None and self.response_format is not None:
            raise misfit("no such field beside response_format", at=("structured_outputs",))
        if self.stop and self.structured:
            raise misfit("no stop strings beside a structured output", at=("stop",))
        if self.top_logprobs and not self.logprobs:
            raise misfit('0 without "logprobs": true', at=("top_logprobs",))
        return self

    @property
    def structured(self) -> bool:
        """True where the form of the answer is prescribed."""
        formatted = self.response_format is not None and self.response_format.type != "text"
        return formatted or self.structured_outputs is not None


def parse_request(body: bytes, *, max_seconds: float) -> ChatRequest:
    """Parse and check a request body.

    `max_seconds` is the default and the limit of `timeout`. Raises RequestError naming the place, the value found
    there and what was expected, whatever the bytes are, and nothing else.
    """
    data = parse_json(body)
    if not isinstance(data, dict):
        raise refused((), shown(data), "a JSON object")
    if data.get("timeout") is None:
        data["timeout"] = max_seconds
    try:
        request = ChatRequest.model_validate(data)
    except ValidationError as error:
        raise first_refusal(error, data) from error
    if request.timeout > max_seconds:
        raise refused(("timeout",), shown(data["timeout"]), f"at most {max_seconds:g} seconds")
    return request
