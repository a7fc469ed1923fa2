"""Disaggregated serving: one pool computes prompts, another answers them."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from kvindex.errors import ConfigError, NoEligibleWorkerError
from kvindex.policy.check import finite
from kvindex.policy.router import AS_EVER, EVERYBODY, NUMBERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvindex.policy.decision import Decision
    from kvindex.policy.filter import Filter
    from kvindex.policy.router import Images, Integers, Override, Router

Pool: TypeAlias = Literal["prefill", "decode"]
AS_THEY_ARE: Mapping[Any, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Bypass:
    """When a prompt is computed where it is answered.

    - `short`: of `rest` tokens of the prompt that are not cached at the decode
      worker, by its policy's weights, both hold: `rest < tokens`, and
      `rest / prompt_tokens < ratio`.
    - `busy`: more than `prefill_tokens` wait for their prefill at the prefill worker
      that would be chosen.

    Neither if the decode worker would have more than `decode_blocks` in use.

    Source: conditional disaggregation of NVIDIA Dynamo. The defaults are those of its
    policy `isl_bounding`; with `prefill_tokens` it is `isl_or_load`, with `tokens=0`
    besides `prefill_load`. There the last two numbers are shares of a worker's
    `max_num_batched_tokens` and of its blocks.

    Attributes:
        tokens: 0 or more; 0 means that no prompt is short.
        ratio: 0 to 1.
        prefill_tokens: 0 or more, None for no such rule.
        decode_blocks: 0 or more, the prompt's own included; None for no such limit.

    Raises:
        ConfigError: If a number is out of its range.
    """

    tokens: float = 2048
    ratio: float = 0.7
    prefill_tokens: float | None = None
    decode_blocks: float | None = None

    def __post_init__(self) -> None:
        """Refuse numbers without a meaning."""
        for name in ("tokens", "prefill_tokens", "decode_blocks"):
            value = getattr(self, name)
            if value is not None:
                finite(name, value)
        if not 0 <= self.ratio <= 1:
            msg = f"ratio is {self.ratio}: expected 0 to 1"
            raise ConfigError(msg)

    def short(self, rest: int, prompt_tokens: int) -> bool:
        """Return whether a rest is short."""
        return rest < self.tokens and rest / max(1, prompt_tokens) < self.ratio

    def busy(self, prefill_tokens: float) -> bool:
        """Return whether a prefill worker with so many tokens is busy."""
        return self.prefill_tokens is not None and prefill_tokens > self.prefill_tokens

    def fits(self, decode_blocks: float) -> bool:
        """Return whether a decode worker with so many blocks may compute a prompt."""
        return self.decode_blocks is None or decode_blocks <= self.decode_blocks


NEVER = Bypass(tokens=0)


@dataclass(frozen=True, slots=True)
class Split:
    """Where a prompt is computed, and where it is answered.

    Attributes:
        request: The request's name in both pools.
        decode: Who answers.
        prefill: Who computes the prompt before; None if the decode worker does.
        bypass: Why it does: `short`, `busy`, or `nobody` where no prefill worker is
            eligible; None if there is a prefill worker.
    """

    request: str
    decode: Decision
    prefill: Decision | None
    bypass: Literal["short", "busy", "nobody"] | None


class Disaggregated:
    """A router for each of two pools, and when the first one is passed by.

    The decode worker is chosen first, since what it holds says whether the prompt
    needs a prefill worker at all. A pool that should go by load alone has a policy
    with a device weight of zero.

    Args:
        prefill: A router with the role `prefill`.
        decode: A router with the role `decode`.
        bypass: When the decode worker computes the prompt; None for never.

    Raises:
        ConfigError: If a router has another role.

    Example:
        >>> import kvindex
        >>> from kvindex.policy import Bypass, Disaggregated, Router
        >>> index = kvindex.Indexer(block_size=4)
        >>> split = Disaggregated(
        ...     Router(index, ["p0"], role="prefill"),
        ...     Router(index, ["d0"], role="decode"),
        ...     bypass=Bypass(tokens=8, ratio=1.0),
        ... ).route(range(100))
        >>> split.prefill.worker, split.decode.worker
        ('p0', 'd0')
    """

    def __init__(
        self, prefill: Router, decode: Router, *, bypass: Bypass | None = None
    ) -> None:
        """Check the roles."""
        for role, router in (("prefill", prefill), ("decode", decode)):
            if router.role != role:
                msg = f"the {role} router's role is {router.role!r}: expected {role!r}"
                raise ConfigError(msg)
        self.prefill = prefill
        self.decode = decode
        self.bypass = NEVER if bypass is None else bypass

    def route(
        self,
        tokens: Integers,
        /,
        *,
        request: str | None = None,
        lora_name: str | None = None,
        cache_salt: str | None = None,
        mm: Images | None = None,
        only: Mapping[Pool, Filter] = AS_THEY_ARE,
        override: Mapping[Pool, Override] = AS_THEY_ARE,
        now: float | None = None,
    ) -> Split:
        """Choose for a prompt, and add the request to the load of both.

        Args:
            tokens: As for `Router.route`, and so are the others.
            request: A name that no running request has; one is made by default.
            lora_name: The adapter's name.
            cache_salt: The cache salt.
            mm: Images, as (identifier, first token, length).
            only: Whom to leave out, for `prefill`, `decode` or both. If it leaves no
                prefill worker, the decode worker computes the prompt.
            override: What is different for this prompt, in the same way.
            now: Seconds, `time.monotonic()` if not given.

        Raises:
            NoEligibleWorkerError: If no decode worker may serve it now. Nothing is
                added.
            ConfigError: If the request is running already, or a pool is unknown.
        """
        if unknown := (only.keys() | override.keys()) - {"prefill", "decode"}:
            msg = f"pool is {min(unknown)!r}: expected prefill or decode"
            raise ConfigError(msg)
        request = request or f"request-{next(NUMBERS)}"
        decode = self.decode.route(
            tokens,
            request=request,
            lora_name=lora_name,
            cache_salt=cache_salt,
            mm=mm,
            only=only.get("decode", EVERYBODY),
            override=override.get("decode", AS_EVER),
            now=now,
        )
        fits = self.bypass.fits(decode.why["decode_blocks"])
        cached = round(decode.row.score * self.decode.index.block_size)
        rest = max(0, decode.prompt_tokens - cached)
        if fits and self.bypass.short(rest, decode.prompt_tokens):
            return Split(request, decode, None, "short")
        different = override.get("prefill", AS_EVER)
        try:
            prompt = self.prefill._prompt(  # noqa: SLF001 - `choose` would hash within the lock
                tokens, lora_name, cache_salt, mm, different, now
            )
            # No other decision may come between the choice and what follows of it.
            with self.prefill.load.lock:
                prefill = self.prefill._choose(  # noqa: SLF001
                    prompt, request, only.get("prefill", EVERYBODY), different, now
                )
                if fits and self.bypass.busy(prefill.why["prefill_tokens"]):
                    return Split(request, decode, None, "busy")
                self.prefill.begin(prefill, now)
        except NoEligibleWorkerError:
            return Split(request, decode, None, "nobody")
        except Exception:
            self.decode.done(request)
            raise
        return Split(request, decode, prefill, None)

    def prefill_complete(self, split: Split, now: float | None = None) -> None:
        """Note that the prompt is computed: the prefill worker is free of it."""
        self.prefill.prefill_complete(split.request)
        self.decode.prefill_complete(split.request, now)

    def produced(self, split: Split, tokens: int, now: float | None = None) -> bool:
        """Note how many tokens of the answer there are in all.

        Returns:
            Whether the request is running.
        """
        self.prefill.prefill_complete(split.request)
        return self.decode.produced(split.request, tokens, now)

    def done(self, split: Split) -> bool:
        """Take a request away from both pools.

        Returns:
            Whether it was running; twice is no error.
        """
        self.prefill.done(split.request)
        return self.decode.done(split.request)
