"A model of one's own: the mean of the source's vectors, and the last token's."
from dataclasses import dataclass
from typing import Annotated
from torch import nn
from annotated_transformer.engine.kinds import register

@dataclass(frozen=True)
class BagConfig:
    "A bag of words."
    vocab_size: int = 1000
    d_model: int = 32
    looseness: Annotated[float, "how loose the bag is"] = 0.1

class Embedding(nn.Embedding):
    def logits(self, hidden):
        return hidden @ self.weight.T

class Bag(nn.Module):
    def __init__(self, config):
        super().__init__()
        if not 0 <= config.looseness < 1:
            raise ValueError(f"looseness is {config.looseness}: give a number from 0 to below 1")
        self.config, self.embedding = config, Embedding(config.vocab_size, config.d_model)
        self.dropout = nn.Dropout(config.looseness)
        nn.init.normal_(self.embedding.weight, std=0.1)

    def encode(self, src):
        return self.dropout(self.embedding(src)), (src != 0)[:, None, None, :]

    def decode(self, tgt, memory, mask):
        there = mask[:, 0, 0, :, None]
        return self.embedding(tgt) + (memory * there).sum(1, keepdim=True) / there.sum(1, keepdim=True)

register("bag", BagConfig, Bag)
