"""A training with transformers' Trainer, of a model as small as can be: it logs every step, evaluates
and saves every fourth, and resumes from its newest checkpoint.

Arguments: the number of steps, and the step after which it dies, if it did not resume (0: never).
"""

import os
import sys
from pathlib import Path

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

STEPS, DIES_AFTER = int(sys.argv[1]), int(sys.argv[2])
OUT, RANKS = Path("out"), int(os.environ.get("WORLD_SIZE", 1))
BATCH, WORDS, LENGTH = 4, 32, 8


class Dies(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == DIES_AFTER:
            os._exit(85)


def make_texts(count: int) -> list[dict[str, torch.Tensor]]:
    texts = torch.randint(WORDS, (count, LENGTH))
    return [{"input_ids": text, "labels": text} for text in texts]


torch.set_num_threads(1)
set_seed(1)
config = GPT2Config(
    vocab_size=WORDS,
    n_positions=LENGTH,
    n_embd=16,
    n_layer=2,
    n_head=2,
    bos_token_id=0,
    eos_token_id=0,
)
checkpoint = get_last_checkpoint(str(OUT)) if OUT.is_dir() else None
trainer = Trainer(
    model=GPT2LMHeadModel(config),
    args=TrainingArguments(
        output_dir=str(OUT),
        max_steps=STEPS,
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=BATCH,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=4,
        save_steps=4,
        report_to="none",
        use_cpu=True,
        dataloader_pin_memory=False,
    ),
    train_dataset=make_texts(BATCH * 10),
    eval_dataset=make_texts(BATCH * STEPS * RANKS),  # its bar is as long as that of the training
    callbacks=[] if checkpoint else [Dies()],
)
trainer.evaluate(make_texts(BATCH * RANKS))  # its bar comes before that of the training
trainer.train(resume_from_checkpoint=checkpoint)
trainer.save_state()
