#!/usr/bin/env python3
"""vLLM's side of the peer benchmark: one process, no server, tokens a second as JSON.

usage: vllm_bench.py MODEL THREADS [--only NAME] [--eager]

Steps of the engine are timed one by one, as those of the other sides are, so that decode rates hold
no prefill: all prompts go through in one step, which is the prefill, and each later step gives one
token to every sequence. Prompts are random tokens that differ between sequences and runs; nothing
is read from a prefix cache.
"""
import argparse
import functools
import json
import os
import random
import sys
import time

PREFILL_TOKENS = 512
DECODE_TOKENS = 64
PROMPT_TOKENS = 128
BATCH_TOKENS = 32
BATCHES = (1, 8, 16, 32)
REPETITIONS = 3
# Of 49152, above the special ones.
TOKENS = range(100, 40_000)


def bind_threads(threads):
    """Must come before vLLM is imported: it reads these when it is."""
    cpus = sorted(os.sched_getaffinity(0))
    if threads > len(cpus):
        sys.exit(f"{threads} threads were asked for, there are {len(cpus)} CPUs")
    os.environ.update(
        VLLM_CPU_OMP_THREADS_BIND=",".join(map(str, cpus[:threads])),
        VLLM_CPU_KVCACHE_SPACE="1",
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        VLLM_NO_USAGE_STATS="1",
        VLLM_DO_NOT_TRACK="1",
        VLLM_LOGGING_LEVEL=os.environ.get("VLLM_LOGGING_LEVEL", "WARNING"),
        HF_HUB_OFFLINE="1",
        OMP_NUM_THREADS=str(threads),
    )


class Side:
    """A loaded model, driven step by step."""

    def __init__(self, model, eager):
        from vllm import LLM

        llm = LLM(
            model=model,
            dtype="bfloat16",
            skip_tokenizer_init=True,
            max_model_len=1024,
            max_num_seqs=max(BATCHES),
            # All prompts fit one step.
            max_num_batched_tokens=max(BATCHES) * PROMPT_TOKENS,
            enable_prefix_caching=False,
            async_scheduling=False,
            enforce_eager=eager,
            disable_log_stats=True,
        )
        self.engine = llm.llm_engine
        self.random = random.Random(1)
        self.requests = 0

    def run(self, batch, prompt_tokens, count):
        """Seconds of the prefill, and of the `count - 1` steps after it."""
        from vllm import SamplingParams

        params = SamplingParams(
            max_tokens=count, min_tokens=count, temperature=0.0, ignore_eos=True, detokenize=False
        )
        for _ in range(batch):
            prompt = {"prompt_token_ids": self.random.choices(TOKENS, k=prompt_tokens)}
            self.engine.add_request(str(self.requests), prompt, params)
            self.requests += 1
        seconds = []
        while self.engine.has_unfinished_requests():
            start = time.perf_counter()
            outputs = self.engine.step()
            seconds.append(time.perf_counter() - start)
            lengths = {len(output.outputs[0].token_ids) for output in outputs}
            if len(outputs) != batch or lengths != {len(seconds)}:
                sys.exit(f"step {len(seconds)} gave {len(outputs)} outputs of {lengths} tokens")
        if len(seconds) != count:
            sys.exit(f"{len(seconds)} steps for {count} tokens")
        if count > 1:
            last = {output.outputs[0].token_ids[-1] for output in outputs}
            print(f"batch {batch}: {len(last)} tokens differ in the last step", file=sys.stderr)
        return seconds[0], sum(seconds[1:])

    def prefill(self):
        return PREFILL_TOKENS / self.run(1, PREFILL_TOKENS, 1)[0]

    def decode(self, batch, prompt_tokens, count):
        return batch * count / self.run(batch, prompt_tokens, count + 1)[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("threads", type=int)
    parser.add_argument("--only", default="", help="measure what has this in its name")
    parser.add_argument("--eager", action="store_true", help="do not compile the model's graph")
    args = parser.parse_args()
    bind_threads(args.threads)
    side = Side(args.model, args.eager)
    tests = {
        f"prefill {PREFILL_TOKENS}": (REPETITIONS, side.prefill),
        # From one token on: a sequence cannot be empty.
        f"decode {DECODE_TOKENS}": (
            REPETITIONS,
            functools.partial(side.decode, 1, 1, DECODE_TOKENS),
        ),
    }
    for batch in BATCHES:
        run = functools.partial(side.decode, batch, PROMPT_TOKENS, BATCH_TOKENS)
        tests[f"batch {batch:02}"] = (1, run)
    rates = {}
    for name, (repetitions, run) in tests.items():
        if args.only in name:
            # The first run of a shape makes its buffers.
            run()
            rates[name] = max(run() for _ in range(repetitions))
    print(json.dumps(rates))


if __name__ == "__main__":
    main()
