"""The smallest use: two workers, one prompt, and who holds how much of it."""

from __future__ import annotations

import kvindex

BLOCK = 16


def main() -> None:
    """Tell an index what two workers hold, and route a prompt."""
    index = kvindex.Indexer(block_size=BLOCK)
    prompt = list(range(8 * BLOCK))

    # A real router passes on the bytes that engines publish; these objects say
    # the same. Worker w0 has the first four blocks on its GPU, and the next two
    # only in host memory.
    index.apply(
        [
            kvindex.BlockStored([1, 2, 3, 4], prompt[: 4 * BLOCK], medium="GPU"),
            kvindex.BlockStored(
                [5, 6], prompt[4 * BLOCK : 6 * BLOCK], parent_block_hash=4, medium="CPU"
            ),
        ],
        worker="w0",
    )
    index.apply(
        [kvindex.BlockStored([1, 2, 3, 4, 5], prompt[: 5 * BLOCK])], worker="w1"
    )

    for row in sorted(index.match(prompt), key=lambda row: -row.score):
        print(
            f"{row.worker}: {row.depth} of {len(prompt) // BLOCK} blocks "
            f"({row.device} on the GPU, {row.host} in host memory), score {row.score}"
        )
    best = index.match(prompt).best()
    if best is not None:
        print(f"route to {best.worker}")


if __name__ == "__main__":
    main()
