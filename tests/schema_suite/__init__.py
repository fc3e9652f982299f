"""The official JSON Schema test suite (draft 2020-12) against the engine's grammars."""
