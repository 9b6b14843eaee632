"""What a user asks `ancre data prepare` for. All of it decides the output; a folder holds one such choice."""

from __future__ import annotations

import re

from pydantic import Field, model_validator

from models.spec import Spec
from orchestrator.data.base import existing
from orchestrator.data.files import READERS
from orchestrator.pretrain.spec import BPE_ALPHABET

HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
SHARD_TOKENS = 2**26  # 134 MB of 2-byte tokens


class Settings(Spec):
    """Source, tokenizer and sizes."""

    source: str = Field(min_length=1)  # c4, another name on the Hugging Face hub, or a path
    config: str | None = None  # of a dataset on the hub
    split: str | None = None  # of a dataset on the hub; none: train
    column: str = "text"  # where the text is
    val: str | None = None  # held-out text: a path, or a split on the hub; none: a fraction
    val_fraction: float = Field(default=0.005, gt=0, lt=1)  # of the documents, picked by the hash of their text
    tokenizer: str = Field(min_length=1)  # bpe, a tokenizer.json, or a name on the hub
    vocab_size: int | None = Field(default=None, ge=BPE_ALPHABET)  # of bpe
    limit: int | None = Field(default=None, ge=1)  # documents, of training and of held-out text
    limit_tokens: int | None = Field(
        default=None, ge=1
    )  # the same in tokens; it ends with the document that reaches it
    shard_tokens: int = Field(default=SHARD_TOKENS, ge=1, le=2**31)  # a shard ends with the document that fills it

    @model_validator(mode="after")
    def _check(self) -> Settings:
        if self.local and (self.config or self.split):
            raise ValueError(f"--config and --split are of datasets on the hub; {self.source} is a path")
        if (self.tokenizer == "bpe") != (self.vocab_size is not None):
            missing = self.tokenizer == "bpe"
            raise ValueError(
                "--tokenizer bpe needs --vocab-size N" if missing else "--vocab-size is for --tokenizer bpe"
            )
        return self

    @property
    def local(self) -> bool:
        """Whether the source is a path; `c4` never is, `./c4` is."""
        if self.source == "c4":
            return False
        file = self.source.endswith(tuple(READERS))
        return file or existing(self.source) is not None or not HUB_NAME.fullmatch(self.source)
