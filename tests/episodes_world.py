"""Where episodes come from: a few engines, a few prompts, and some malice."""

from dataclasses import replace
from random import Random

from kvindex import engines
from kvindex.events import AllBlocksCleared, BlockRemoved, BlockStored
from tests.episodes_engine import (
    FORMS,
    LAYOUTS,
    MEDIA,
    NAMINGS,
    Chain,
    Engine,
    Group,
)
from tests.episodes_faults import faulty, malicious
from tests.episodes_steps import (
    Attach,
    Batch,
    Broken,
    Clear,
    Detach,
    Episode,
    Expire,
    Names,
    Predict,
    Prompt,
    Query,
    Register,
    Remove,
    Reset,
    Settings,
    Step,
)
from tests.episodes_wire import payload
from tests.model_match import Candidate, Region
from tests.model_read import TIERS, Fields, Name, Wire

# The kind alone: Mooncake's own bytes are another matter.
DIGESTS = engines.Engine(name="test-mooncake", title="Digests", kind="mooncake")
engines.add(DIGESTS)

WORKERS = ("a", "b", "c")
POOLS = ("p", "a")  # one is called like a worker
NAMESPACES = (("", ""),) * 5 + (("x", ""), ("", "s"), ("x", "s"), ("y", ""), ("", "x"))
IMAGES = ("a1" * 32, "a1" * 31 + "00", "B2" * 32, "picture", "clip")
WEIGHTS = ({"host": 0.5}, {"device": 2.0, "disk": 0.0}, {"external": 1.0, "shared": 1})
KINDS_BESIDES = (
    "sliding_window",
    "sliding_window",
    "sliding_window_mla",
    "mamba",
    "mamba",
    "chunked_local_attention",
    "full_attention",
)
EPOCHS = (None, "current", "stale", "unknown")
MAX_AGES = ({"disk": 4.0}, {"host": 3.0}, {"device": 5.0, "host": 2.5, "disk": 2.0})
CUSTOM_MEDIA = ({"Moon": "disk"}, {"moon": "host", "SSD": "external"})


class World:
    """All that one episode's events are made from."""

    def __init__(self, random: Random) -> None:
        """Draw the settings, the prompts and the engines."""
        self.random = random
        self.ages = random.random() < 0.2
        self.settings = Settings(
            block_size=random.choice((2, 2, 4)),
            weights=random.choice((None, None, *WEIGHTS)),
            registered_only=random.random() < 0.08,
            group_rules=random.random() < 0.3,
            orphan_blocks=random.choice((16384,) * 4 + (8, 4, 2, 0)),
        )
        size = self.settings.block_size
        letters = [
            tuple(random.randint(1, 2) for _ in range(size))
            for _ in range(random.choice((2, 3)))
        ]
        self.letters = letters
        self.chains = [self.chain() for _ in range(random.randint(2, 4))]
        self.chains += [self.relative() for _ in range(random.randint(1, 3))]
        self.divisors = random.choice(((1,), (1,), (1, 1, 2), (size, size // 2, 1)))
        habits = random.random()
        shared = random.choice(LAYOUTS), random.choice(NAMINGS), random.choice(FORMS)
        if habits < 0.12:  # tenants whose names do not tell them apart
            shared = random.choice(("vllm", "vllm-8")), "tokens", "int"
            one = self.chains[0]
            tenants = [replace(one, lora=lora, salt=salt) for lora, salt in NAMESPACES]
            self.chains = [*random.sample(tenants, 3), *self.chains[:2]]
        self.engines = [
            self.engine(worker, rank, shared if habits < 0.5 else None)
            for worker in WORKERS[: random.randint(1, 3)]
            for rank in ((0, 1) if random.random() < 0.3 else (0,))
        ]
        pools = POOLS[: random.choice((0, 0, 1, 1, 2))]
        self.engines += [
            replace(self.engine(pool, 0, shared if habits < 0.5 else None), pool=True)
            for pool in pools
        ]
        self.registrations = {
            (engine.worker, engine.pool): self.registration(engine)
            for engine in reversed(self.engines)
        }
        self.names: list[Name] = [1, 2]
        self.now = 0.0
        self.predicts = random.choice((0.0, 0.0, 0.05, 0.3))
        self.capacity = random.choice((None, None, 1, 3, 6))

    # ---- prompts ----

    def chain(self) -> Chain:
        """Draw a prompt."""
        random = self.random
        tokens: list[int] = []
        for _ in range(random.choice((2, 3, 4, 6, 8))):
            tokens += random.choice(self.letters)
        tokens.append(random.randint(1, 2))
        lora, salt = random.choice(NAMESPACES)
        return Chain(tuple(tokens), lora, salt, self.images(len(tokens)))

    def images(self, length: int) -> tuple[Region, ...]:
        """Draw the images of a prompt, mostly none."""
        random = self.random
        if random.random() < 0.65:
            return ()
        return tuple(
            (random.choice(IMAGES), random.randrange(length - 1), random.randint(1, 6))
            for _ in range(random.choice((1, 1, 2)))
        )

    def relative(self) -> Chain:
        """Draw a prompt that shares a prefix with another, or its tokens."""
        random = self.random
        other = random.choice(self.chains)
        if random.random() < 0.45:
            lora, salt = random.choice(NAMESPACES)
            return replace(other, lora=lora, salt=salt)
        size = self.settings.block_size
        keep = random.randint(1, (len(other.tokens) - 1) // size) * size
        tokens = list(other.tokens[:keep])
        for _ in range(random.randint(1, 4)):
            tokens += random.choice(self.letters)
        return replace(other, tokens=(*tokens, random.randint(1, 2)))

    # ---- engines ----

    def engine(
        self, worker: str, rank: int, shared: tuple[str, str, str] | None
    ) -> Engine:
        """Draw an engine; those of one fleet share their habits."""
        random = self.random
        layout = random.choice(LAYOUTS)
        naming, form = random.choice(NAMINGS), random.choice(FORMS)
        if shared is not None and random.random() < 0.8:
            layout, naming, form = shared
        if layout.startswith("sglang") and form != "int":
            form = "signed"
        return Engine(
            worker,
            rank,
            self.settings.block_size // random.choice(self.divisors),
            naming,
            form,
            layout,
            pairs=random.random() < 0.12,
            unit=random.choice((1, 1, 1, 2, 2, 3)),
            coarse=random.random() < 0.2,
            offload=random.choice(("tokens", "tokens", "names", "flexkv", "mooncake")),
            **self.hybrid(layout),
            root=0 if random.random() < 0.1 else None,
            as_objects=layout in ("vllm", "sglang") and random.random() < 0.5,
            marks_salt=random.random() < 0.2,
            seq=random.choice((None, None, 0, 7, 2**40)),
            source=random.choice(("", "", "", "s")),
        )

    def hybrid(self, layout: str) -> Fields:
        """Draw the cache groups of a hybrid model, mostly none."""
        random = self.random
        often = 0.7 if self.settings.group_rules else 0.1
        numbered = layout in ("vllm", "vllm-12", "vllm-10")
        if not numbered or random.random() > often:
            return {}
        numbers = random.sample(range(4), random.choice((2, 2, 3)))
        groups = [
            Group(
                number,
                random.choice(KINDS_BESIDES),
                random.choice((None, 1, 2, 3, 4, 5, 7, 9)),
                random.choice((1, 1, 1, 2, 3)),
            )
            for number in numbers[1:]
        ]
        return {"main": numbers[0], "groups": tuple(groups)}

    def registration(self, engine: Engine) -> Fields:
        """Draw how a worker or a pool is registered, fitting an engine mostly."""
        random = self.random
        settings: Fields = {"profile": self.profile(engine)}
        if random.random() < 0.25:
            choices = ((), ("device",), ("host",), ("device", "host", "disk"), TIERS)
            settings["clears"] = random.choice(choices)
        if random.random() < 0.15:
            settings["copies"] = random.choice(((), ("device",), TIERS))
        if random.random() < 0.3:
            chunk = random.choice((2, 2, 3, 4)) * self.settings.block_size
            settings["chunk_tokens"] = {random.choice(("host", "host", "disk")): chunk}
        if random.random() < 0.2:
            settings["media"] = random.choice(CUSTOM_MEDIA)
        if random.random() < (0.8 if engine.naming == "numbers" else 0.1):
            settings["names"] = "own"
        if engine.root is not None and random.random() < 0.9:
            settings["root_hash"] = engine.root
        if random.random() < 0.5:
            settings["lora_ids"] = {1: "x"}
        if self.ages and random.random() < 0.8:
            settings["max_age"] = random.choice(MAX_AGES)
        return settings

    def profile(self, engine: Engine) -> str:
        """Draw a profile, mostly that of an engine."""
        random = self.random
        family = "sglang" if engine.layout.startswith("sglang") else "vllm"
        profile = random.choice((family, family, family, "auto", "vllm", "sglang"))
        for offload, name in (("flexkv", "flexkv"), ("mooncake", DIGESTS.name)):
            if random.random() < (0.9 if engine.offload == offload else 0.04):
                profile = name
        return profile

    def register(self, engine: Engine) -> Register:
        """Register a worker or a pool, mostly as always."""
        settings = dict(self.registrations[engine.worker, engine.pool])
        if self.random.random() < 0.15:
            settings = self.registration(engine)
        return Register(engine.worker, settings, engine.pool)

    # ---- steps ----

    def first_steps(self) -> list[Step]:
        """Register most workers and pools, and attach some."""
        random = self.random
        engines = {(engine.worker, engine.pool): engine for engine in self.engines}
        steps: list[Step] = [
            self.register(engine)
            for _, engine in sorted(engines.items(), key=lambda item: item[0])
            if random.random() < 0.7
        ]
        if random.random() < 0.3:
            steps.append(Attach(random.choice(WORKERS), random.choice(POOLS)))
        return steps

    def step(self) -> Step | None:
        """Draw the next step; None where an engine's batch got lost."""
        if self.random.random() < self.predicts:
            return self.prediction()
        if self.ages and self.random.random() < 0.1:
            self.now += self.random.choice((0, 1, 2, 3))
            return Expire(self.now)
        return self.happening()

    def happening(self) -> Step | None:
        """Draw what an engine or its operator does."""
        random = self.random
        engine = random.choice(self.engines)
        dice = random.random()
        if dice < 0.88:
            return self.batch(engine)
        if dice < 0.92:
            return self.register(engine)
        if dice < 0.94:
            name = random.choice((engine.worker, engine.worker, "z"))
            return Remove(name, engine.pool)
        if dice < 0.96:
            if random.random() < 0.6:
                engine.residents.clear()
            return Reset(engine.worker, engine.rank, engine.pool)
        if dice < 0.965:
            return Clear()
        return self.attachment() if dice < 0.98 else self.broken(engine)

    def prediction(self) -> Predict | Expire:
        """Draw a prompt that goes to a worker, or a later time."""
        random = self.random
        self.now += random.choice((0, 1, 1, 2))
        if random.random() < 0.25:
            return Expire(self.now)
        prompt = self.prompt()
        return Predict(
            random.choice((*WORKERS, "z")),
            random.choice((0, 0, 1)),
            prompt.tokens,
            self.now - random.choice((0, 0, 0, 1)),
            random.choice((0.0, 2.0, 5.0, 5.0, 10.0)),
            random.choice((self.capacity, self.capacity, None)),
            prompt.lora_name,
            prompt.cache_salt,
            prompt.mm,
        )

    def attachment(self) -> Attach | Detach:
        """Draw a worker, known or not, that is attached or detached."""
        random = self.random
        step = random.choice((Attach, Attach, Detach))
        return step(random.choice((*WORKERS, "nobody")), random.choice(POOLS))

    def batch(self, engine: Engine) -> Batch | None:
        """Draw one batch of an engine: its work, malice, faults and losses."""
        random = self.random
        wires: list[Wire] = []
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            chain = random.choice(self.chains)
            dice = random.random()
            if dice < 0.8:
                wires += engine.work(random, chain)
            elif dice < 0.93:
                wires += [malicious(random, engine, self.chains, self.names)]
            else:
                wires += [faulty(random, engine, chain)]
        if random.random() < 0.06:
            random.shuffle(wires)
        if random.random() < 0.05:
            wires = wires[1:]
        self.remember(wires)
        seq = self.number(engine)
        if random.random() < 0.06:
            return None
        return self.sent(engine, tuple(wires), seq)

    def sent(self, engine: Engine, wires: tuple[Wire, ...], seq: int | None) -> Batch:
        """Wrap events into a call of `apply`."""
        random = self.random
        readable = (BlockStored, BlockRemoved, AllBlocksCleared)
        plain = all(
            isinstance(wire.event, readable) and wire.fields is None and not wire.extra
            for wire in wires
        )
        step = Batch(
            engine.worker,
            wires,
            pool=engine.pool,
            dp_rank=engine.rank,
            source=engine.source if random.random() < 0.95 else "other",
            seq=seq,
            epoch=random.choices(EPOCHS, (60, 35, 3, 2))[0],
            strict=random.random() < 0.1,
            now=self.clock(),
        )
        if plain and engine.as_objects and random.random() < 0.9:
            return step
        if random.random() < 0.7:
            step = replace(step, rank_inside=engine.rank, dp_rank=random.choice((0, 5)))
        elif random.random() < 0.2:
            step = replace(step, rank_inside=random.choice((-1, 2**32, "0", 1.5, True)))
        elif random.random() < 0.5:
            step = replace(step, with_rank=False)
        return replace(step, as_bytes=True)

    def clock(self) -> float:
        """Return the time of a batch where it matters; it may go back a little."""
        if not self.ages:
            return 0.0
        self.now += self.random.choice((0, 0, 0, 1))
        return self.now - self.random.choice((0, 0, 0, 1))

    def number(self, engine: Engine) -> int | None:
        """Return the batch's sequence number, seldom an old one."""
        if engine.seq is None:
            return None
        if self.random.random() < 0.04:
            return None
        engine.seq += 1
        if self.random.random() < 0.08:
            return max(0, engine.seq - self.random.randint(1, 3))
        return engine.seq

    def broken(self, engine: Engine) -> Broken:
        """Draw bytes that are no batch."""
        random = self.random
        wires = tuple(engine.prefill(random, random.choice(self.chains)))
        whole = payload(Batch(engine.worker, wires, as_bytes=True))
        cut = whole[: random.randrange(len(whole))]
        odd = (b"", b"\x80", b"\x90", b"\x91\x00", b"\x92\x00\x01", b"\xc0", b"\xc1")
        seq = None if engine.seq is None else engine.seq + 1
        broken = random.choice((cut, cut, *odd))
        return Broken(engine.worker, broken, engine.pool, seq)

    def remember(self, wires: list[Wire]) -> None:
        """Keep names that went by, for malice and for questions."""
        for wire in wires:
            self.names += getattr(wire.event, "block_hashes", ())[:2]
        self.names = self.names[-30:]

    # ---- questions ----

    def queries(self, count: int) -> list[Query]:
        """Draw questions about the prompts and names of this world."""
        return [*(self.prompt() for _ in range(count)), self.named(), self.named()]

    def prompt(self) -> Prompt:
        """Draw a prompt: known, cut, extended, forked, or in another namespace."""
        random = self.random
        chain = random.choice(self.chains)
        tokens = list(chain.tokens)
        dice = random.random()
        if dice < 0.2:
            tokens = tokens[: random.randint(0, len(tokens))]
        elif dice < 0.4:
            tokens[random.randrange(len(tokens))] = random.randint(1, 3)
        elif dice < 0.6:
            tokens += random.choice(self.letters)
        lora, salt = chain.lora, chain.salt
        if random.random() < 0.2:
            lora, salt = random.choice(NAMESPACES)
        mm = chain.mm
        if random.random() < 0.15:
            mm = self.images(len(chain.tokens))
        return Prompt(
            tuple(tokens),
            lora or random.choice((None, "")),
            salt or random.choice((None, "")),
            mm[::-1],  # in another order than the events': it must not matter
            self.candidates(),
            dict(random.choice(WEIGHTS)),
        )

    def named(self) -> Names:
        """Draw a list of names: those of a prompt, or any that went by."""
        random = self.random
        engine, chain = random.choice(self.engines), random.choice(self.chains)
        depth = (len(chain.tokens) - 1) // engine.block_size
        tier = random.choice(tuple(MEDIA))
        names = [engine.name(chain, end, tier) for end in range(1, depth + 1)]
        if random.random() < 0.3:
            names = random.sample(self.names, min(len(self.names), 3))
        return Names(tuple(names), self.candidates())

    def candidates(self) -> tuple[Candidate, ...]:
        """Draw workers to choose from: known, unknown, by rank, twice."""
        random = self.random
        pool: list[Candidate] = ["a", "b", "c", "nobody", ("a", 0), ("a", 1), ("b", 9)]
        return tuple(random.choices(pool, k=random.randint(0, 4)))


def episode(seed: int) -> Episode:
    """Return the episode of a seed."""
    world = World(Random(seed))
    steps: list[Step] = world.first_steps()
    for _ in range(world.random.choice((4, 10, 20, 30))):
        step = world.step()
        if step is not None:
            steps.append(step)
    return Episode(seed, world.settings, tuple(steps), tuple(world.queries(8)))
