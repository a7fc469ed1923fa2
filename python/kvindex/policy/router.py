"""The router: index, load and policy in one object."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np

import kvindex
from kvindex.errors import ConfigError
from kvindex.policy.cost import Cost
from kvindex.policy.decision import Decision
from kvindex.policy.filter import Candidate, Filter, Limits, among
from kvindex.policy.load import Load, moment
from kvindex.policy.selection import Selection
from kvindex.policy.view import View

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Sized

    from typing_extensions import Buffer

    from kvindex.policy.load import Slots
    from kvindex.policy.predictions import Predictions
    from kvindex.policy.view import Counts, Floats, Policy

    Integers: TypeAlias = Buffer | Sequence[int]
    Images: TypeAlias = Sequence[tuple[str | bytes, int, int]]

    # The candidates as given, as the index knows them, and as the load does.
    Fleet: TypeAlias = tuple[tuple[Candidate, ...], kvindex.Candidates, Slots]

Role: TypeAlias = Literal["both", "prefill", "decode"]
ROLES = ("both", "prefill", "decode")
EVERYBODY = Filter()
NUMBERS = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Override:
    """What is different for one prompt.

    Attributes:
        policy: Instead of the router's; `dataclasses.replace` changes one of its
            numbers.
        temperature: Instead of the selection's.
        preferred: Workers or candidates that are preferred, and how much: `Cost`
            multiplies by `exp(-tanh(preference))`.
    """

    policy: Policy | None = None
    temperature: float | None = None
    preferred: Mapping[Candidate, float] | None = None


AS_EVER = Override()


class Router:
    """Chooses a worker for each prompt, and keeps count of what runs where.

    Every method may be called from any thread. Decisions are made one at a time,
    since each has to see the load that the one before it added; hashing and
    matching are done before.

    Args:
        index: Who holds what.
        workers: The candidates: workers by name, for the best of their ranks, or
            `(name, rank)`. Load is counted for a candidate as it is named here.
        policy: The policy, `Cost()` by default.
        selection: How one is picked, the lowest cost by default.
        load: The load, for routers that share one; by default one of its own.
        limits: Whom to leave out for being busy, nobody by default.
        predictions: Whether the index expects a worker to hold the prompts that it
            is sent, and for how long. None, the default, goes by events alone.
        role: `prefill` for workers that only prefill: what they decode is not
            counted, and a request ends there with its prefill. `decode` for those
            that only decode: their prompts arrive computed.

    Raises:
        ConfigError: If the role is unknown or the load has another block size.

    Example:
        >>> import kvindex
        >>> from kvindex.policy import Router
        >>> index = kvindex.Indexer(block_size=4)
        >>> held = kvindex.BlockStored([1, 2], range(8))
        >>> report = index.apply([held], worker="w1")
        >>> router = Router(index, ["w0", "w1"])
        >>> decision = router.route(range(12))
        >>> decision.worker, decision.row.depth, decision.prefill_tokens
        ('w1', 2, 4)
        >>> router.done(decision)
        True
    """

    def __init__(
        self,
        index: kvindex.Indexer,
        workers: Sequence[Candidate] = (),
        *,
        policy: Policy | None = None,
        selection: Selection | None = None,
        load: Load | None = None,
        limits: Limits | None = None,
        predictions: Predictions | None = None,
        role: Role = "both",
    ) -> None:
        """Resolve the candidates."""
        if role not in ROLES:
            msg = f"role is {role!r}: expected one of {', '.join(ROLES)}"
            raise ConfigError(msg)
        if load is not None and load.block_size != index.block_size:
            msg = (
                f"the load's block_size is {load.block_size}: "
                f"expected the index's, {index.block_size}"
            )
            raise ConfigError(msg)
        self.index = index
        self.policy: Policy = Cost() if policy is None else policy
        self.selection = Selection() if selection is None else selection
        self.load = Load(block_size=index.block_size) if load is None else load
        self.limits = limits
        self.predictions = predictions
        self._next_look = -math.inf
        self._role: Role = role
        self._counts_blocks = role != "prefill"
        self._weights = index.weights
        self.set_workers(workers)

    @property
    def role(self) -> Role:
        """What the workers do."""
        return self._role

    @property
    def workers(self) -> tuple[Candidate, ...]:
        """The candidates."""
        return self._fleet[0]

    def set_workers(self, workers: Sequence[Candidate]) -> None:
        """Say who the candidates are from now on.

        What runs on a worker that is no candidate any more is still counted, until
        it is done or `load.remove_worker` is told that the worker is gone.
        """
        names = tuple(workers)
        # One name, so that a decision in another thread sees either fleet whole.
        self._fleet: Fleet = (
            names,
            self.index.candidates(names),
            self.load.slots(names),
        )

    def route(
        self,
        tokens: Integers,
        /,
        *,
        request: str | None = None,
        lora_name: str | None = None,
        cache_salt: str | None = None,
        mm: Images | None = None,
        only: Filter = EVERYBODY,
        override: Override = AS_EVER,
        now: float | None = None,
    ) -> Decision:
        """Choose a candidate for a prompt, and add the request to the load.

        Args:
            tokens: The prompt, as `Indexer.match` takes it. A buffer is read much
                faster than a list.
            request: A name that no running request has; one is made by default.
            lora_name: The adapter's name.
            cache_salt: The cache salt.
            mm: Images, as (identifier, first token, length).
            only: Whom to leave out.
            override: What is different for this prompt.
            now: Seconds, `time.monotonic()` if not given. Predictions, a `max_age`
                and a feed go by this clock, too: another one ends what they keep.

        Raises:
            NoEligibleWorkerError: If nobody may serve it now. Nothing is added.
            ConfigError: If the request is running already.
        """
        prompt = self._prompt(tokens, lora_name, cache_salt, mm, override, now)
        return self._route(prompt, request, only, override, now)

    def choose(
        self,
        tokens: Integers,
        /,
        *,
        request: str | None = None,
        lora_name: str | None = None,
        cache_salt: str | None = None,
        mm: Images | None = None,
        only: Filter = EVERYBODY,
        override: Override = AS_EVER,
        now: float | None = None,
    ) -> Decision:
        """Choose as `route` does, and add nothing: `begin` does, if it is called.

        Decisions that others make in between are not seen. While `load.lock` is
        held, others wait.

        Args:
            tokens: As for `route`, and so are the others.
            request: A name for `begin`.
            lora_name: The adapter's name.
            cache_salt: The cache salt.
            mm: Images, as (identifier, first token, length).
            only: Whom to leave out.
            override: What is different for this prompt.
            now: Seconds, `time.monotonic()` if not given.

        Raises:
            NoEligibleWorkerError: If nobody may serve it now.
        """
        prompt = self._prompt(tokens, lora_name, cache_salt, mm, override, now)
        with self.load.lock:
            return self._choose(prompt, request, only, override, now)

    def begin(self, decision: Decision, now: float | None = None) -> None:
        """Add a request to the load where `choose` wants it to run.

        Raises:
            ConfigError: If the request is running already.
        """
        self._add(decision, now)
        self._expect(decision, now)

    def route_keys(
        self,
        local_keys: Integers,
        /,
        *,
        prompt_tokens: int,
        request: str | None = None,
        only: Filter = EVERYBODY,
        override: Override = AS_EVER,
        now: float | None = None,
    ) -> Decision:
        """Choose as `route` does, by local keys that were computed elsewhere.

        Args:
            local_keys: Of the prompt's full blocks, as `block_keys` returns them.
            prompt_tokens: The prompt's length in tokens.
            request: As for `route`.
            only: As for `route`.
            override: As for `route`.
            now: As for `route`.

        Raises:
            NoEligibleWorkerError: If nobody may serve it now. Nothing is added.
            ConfigError: If the request is running already.
        """
        fleet = self._fleet
        self._end_predictions(now)
        weights = (override.policy or self.policy).weights
        keys = kvindex.chain_keys(local_keys)
        found = self.index.match_chain(keys, workers=fleet[1], weights=weights)
        prompt = _Prompt(found, keys, prompt_tokens, fleet)
        return self._route(prompt, request, only, override, now)

    def prefill_complete(
        self, request: str | Decision, now: float | None = None
    ) -> bool:
        """Note that the first token is there. Ends the request where role is prefill.

        Returns:
            Whether the request was running.
        """
        if self._role == "prefill":
            return self.load.done(named(request))
        return self.load.prefill_complete(named(request), now)

    def produced(
        self, request: str | Decision, tokens: int, now: float | None = None
    ) -> bool:
        """Note how many tokens of the answer there are in all.

        Returns:
            Whether the request is running.
        """
        return self.load.produced(named(request), tokens, now)

    def done(self, request: str | Decision) -> bool:
        """Take a request away, finished or not.

        Returns:
            Whether it was running; twice is no error.
        """
        return self.load.done(named(request))

    def _prompt(
        self,
        tokens: Integers,
        lora_name: str | None,
        cache_salt: str | None,
        mm: Images | None,
        override: Override,
        now: float | None,
    ) -> _Prompt:
        """Hash a prompt once, for the index and for the load."""
        fleet = self._fleet
        self._end_predictions(now)
        query: dict[str, Any] = {
            "lora_name": lora_name,
            "cache_salt": cache_salt,
            "mm": mm,
            "workers": fleet[1],
            "weights": (override.policy or self.policy).weights,
        }
        keys: Integers = ()
        if self._counts_blocks or self.predictions is not None:
            found, keys = self.index.match_with_keys(tokens, **query)
        else:
            found = self.index.match(tokens, **query)
        return _Prompt(found, keys, len(cast("Sized", tokens)), fleet)

    def _route(
        self,
        prompt: _Prompt,
        request: str | None,
        only: Filter,
        override: Override,
        now: float | None,
    ) -> Decision:
        with self.load.lock:
            decision = self._choose(prompt, request, only, override, now)
            self._add(decision, now)
        self._expect(decision, now)
        return decision

    def _choose(
        self,
        prompt: _Prompt,
        request: str | None,
        only: Filter,
        override: Override,
        now: float | None,
    ) -> Decision:
        names, _, slots = prompt.fleet
        self.load.expire(now)
        keys = prompt.chain_keys if self._counts_blocks else ()
        policy = override.policy or self.policy
        view = self._view(prompt, policy, self.load.columns(slots, keys))
        if override.preferred:
            view = replace(view, preference=liking(names, override.preferred))
        rows = None
        mask = only.eligible(view, names, prompt.found, only.limits or self.limits)
        if mask is not None:
            rows, view = mask.nonzero()[0], view.where(mask)
        costs = policy.costs(view)
        chosen = self.selection.pick(costs, view.requests, override.temperature)
        row = chosen if rows is None else int(rows[chosen])
        match = prompt.found[row]
        return Decision(
            request=request or f"request-{next(NUMBERS)}",
            candidate=names[row],
            worker=match.worker,
            dp_rank=match.dp_rank,
            cost=float(costs[chosen]),
            row=match,
            prefill_tokens=self._uncached(match, prompt.tokens),
            prompt_tokens=prompt.tokens,
            _keys=prompt.chain_keys,
            _found=prompt.found,
            _rows=rows,
            _view=view,
            _costs=costs,
            _chosen=chosen,
        )

    def _add(self, decision: Decision, now: float | None) -> None:
        self.load.add(
            decision.request,
            decision.candidate,
            chain_keys=decision._keys if self._counts_blocks else (),  # noqa: SLF001
            prefill_tokens=decision.prefill_tokens,
            now=now,
        )

    def _expect(self, decision: Decision, now: float | None) -> None:
        if self.predictions is not None:
            keys = decision._keys  # noqa: SLF001 - the router has put them there
            self.predictions.add(self.index, decision, keys, moment(now))

    def _end_predictions(self, now: float | None) -> None:
        """End what is due, not at each decision."""
        if self.predictions is None:
            return
        now = moment(now)
        if now >= self._next_look:
            self.index.expire(now)
            self._next_look = now + self.predictions.seconds_between_looks

    def _view(
        self,
        prompt: _Prompt,
        policy: Policy,
        columns: tuple[Counts, Counts, Counts],
    ) -> View:
        found = prompt.found
        weights = policy.weights or self._weights
        prefill_tokens, decode_blocks, requests = columns
        return View(
            depths=np.asarray(found.depths, dtype=np.int64),
            scores=np.asarray(found.scores),
            device=np.asarray(found.device, dtype=np.int64),
            prefill_tokens=prefill_tokens,
            decode_blocks=decode_blocks,
            requests=requests,
            prompt_tokens=prompt.tokens,
            block_size=self.index.block_size,
            device_weight=weights.get("device", self._weights["device"]),
            tracks_prefill=self._role != "decode",
        )

    def _uncached(self, row: kvindex.Match, prompt_tokens: int) -> int:
        if self._role == "decode":
            return 0
        return max(0, prompt_tokens - round(row.score * self.index.block_size))


class _Prompt(NamedTuple):
    """What one decision is about."""

    found: kvindex.Matches
    chain_keys: Integers
    tokens: int
    fleet: Fleet


def named(request: str | Decision) -> str:
    """Return a request's name."""
    return request if isinstance(request, str) else request.request


def liking(names: Sequence[Candidate], preferred: Mapping[Candidate, float]) -> Floats:
    """Return how much each candidate is preferred, by its own or its worker's name."""
    return np.array(
        [
            sum(much for name, much in preferred.items() if among(candidate, (name,)))
            for candidate in names
        ],
        dtype=np.float64,
    )
