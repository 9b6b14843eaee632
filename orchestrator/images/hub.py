"""Pictures of a dataset on the Hugging Face hub by name, ILSVRC/imagenet-1k among them, as pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from orchestrator.images.folder import PictureSpec

if TYPE_CHECKING:
    from orchestrator.image_shards.sources import Source


class Spec(PictureSpec):
    """A dataset on the hub, downloaded once: 150 GB for ILSVRC/imagenet-1k, which asks for a login."""

    kind: Literal["hub"] = "hub"
    name: str = Field(default="ILSVRC/imagenet-1k", min_length=1)
    config: str | None = None
    split: str = "train"

    def pictures(self) -> Source:
        from orchestrator.image_shards.hub import Hub

        instead = 'images = { kind = "folder", path = .. }'
        return Hub(self.name, self.config, self.split, self.image_column, self.label_column, instead)
