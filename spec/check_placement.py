#!/usr/bin/env python3
"""Checks placement-vectors.json with a second, small and slow implementation of placement.md.

It follows the text sentence by sentence and needs nothing but Python's standard library:

    python3 spec/check_placement.py
"""

import json
import sys
from functools import cmp_to_key
from pathlib import Path

MASK = (1 << 64) - 1
NO_CAPACITY = (1 << 32) - 1

# --- XXH3, 64 bits, seed 0, default secret -------------------------------------------------------------------------

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
P32_1, P32_2, P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
P64_1, P64_2, P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P64_4, P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def u32(data, at):
    return int.from_bytes(data[at:at + 4], "little")


def u64(data, at):
    return int.from_bytes(data[at:at + 8], "little")


def secret(at):
    return u64(SECRET, at)


def fold(a, b):
    product = a * b
    return (product & MASK) ^ (product >> 64)


def rotl(x, by):
    return ((x << by) | (x >> (64 - by))) & MASK


def avalanche(x):
    x ^= x >> 37
    x = (x * 0x165667919E3779F9) & MASK
    return x ^ (x >> 32)


def avalanche_xxh64(x):
    x ^= x >> 33
    x = (x * P64_2) & MASK
    x ^= x >> 29
    x = (x * P64_3) & MASK
    return x ^ (x >> 32)


def mix16(data, at, key):
    return fold(u64(data, at) ^ secret(key), u64(data, at + 8) ^ secret(key + 8))


def xxh3(data):
    n = len(data)
    if n == 0:
        return avalanche_xxh64(secret(56) ^ secret(64))
    if n <= 3:
        joined = (data[0] << 16) | (data[n >> 1] << 24) | data[n - 1] | (n << 8)
        return avalanche_xxh64(joined ^ u32(SECRET, 0) ^ u32(SECRET, 4))
    if n <= 8:
        x = (u32(data, n - 4) + (u32(data, 0) << 32)) ^ secret(8) ^ secret(16)
        x ^= rotl(x, 49) ^ rotl(x, 24)
        x = (x * 0x9FB21C651E98DF25) & MASK
        x ^= ((x >> 35) + n) & MASK
        x = (x * 0x9FB21C651E98DF25) & MASK
        return x ^ (x >> 28)
    if n <= 16:
        low = u64(data, 0) ^ secret(24) ^ secret(32)
        high = u64(data, n - 8) ^ secret(40) ^ secret(48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return avalanche((n + swapped + high + fold(low, high)) & MASK)
    if n <= 128:
        total = n * P64_1
        for i in range((n - 1) // 32, -1, -1):
            total += mix16(data, 16 * i, 32 * i) + mix16(data, n - 16 * (i + 1), 32 * i + 16)
        return avalanche(total & MASK)
    if n <= 240:
        total = n * P64_1 + sum(mix16(data, 16 * i, 16 * i) for i in range(8))
        total = avalanche(total & MASK)
        total += sum(mix16(data, 16 * i, 16 * (i - 8) + 3) for i in range(8, n // 16))
        return avalanche((total + mix16(data, n - 16, 136 - 17)) & MASK)
    return xxh3_long(data)


def xxh3_long(data):
    n = len(data)
    lanes = [P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1]

    def accumulate(at, key):
        for i in range(8):
            value = u64(data, at + 8 * i)
            keyed = value ^ secret(key + 8 * i)
            lanes[i ^ 1] = (lanes[i ^ 1] + value) & MASK
            lanes[i] = (lanes[i] + (keyed & 0xFFFFFFFF) * (keyed >> 32)) & MASK

    blocks = (n - 1) // 1024
    for block in range(blocks):
        for stripe in range(16):
            accumulate(1024 * block + 64 * stripe, 8 * stripe)
        for i in range(8):
            lanes[i] = ((lanes[i] ^ (lanes[i] >> 47) ^ secret(128 + 8 * i)) * P32_1) & MASK
    for stripe in range((n - 1 - 1024 * blocks) // 64):
        accumulate(1024 * blocks + 64 * stripe, 8 * stripe)
    accumulate(n - 64, 192 - 64 - 7)
    total = n * P64_1
    for i in range(4):
        total += fold(lanes[2 * i] ^ secret(11 + 16 * i), lanes[2 * i + 1] ^ secret(11 + 16 * i + 8))
    return avalanche(total & MASK)


# --- Hashes and cost -----------------------------------------------------------------------------------------------


def node_hash(name):
    return xxh3(name.encode())


def shard_hash(group, name):
    return xxh3(f"{group}/{name}".encode())


def pair_hash(shard, node):
    x = shard ^ node
    x = ((x ^ (x >> 33)) * 0xFF51AFD7ED558CCD) & MASK
    x = ((x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53) & MASK
    return x ^ (x >> 33)


def log2_entry(i):
    if i == 1024:
        return 1 << 48
    x, entry = (1024 + i) << 53, 0
    for bit in range(47, -1, -1):
        x = (x * x) >> 63
        if x >= 1 << 64:
            x >>= 1
            entry += 1 << bit
    return entry


T = [log2_entry(i) for i in range(1025)]


def cost(h):
    h |= 1
    z = 64 - h.bit_length()
    f = ((h << z) & MASK) - (1 << 63)
    step, rest = f >> 53, f & ((1 << 53) - 1)
    log2 = T[step] + (((T[step + 1] - T[step]) * rest) >> 53)
    return (z + 1) * (1 << 48) - log2


def slot(key, slots):
    return (xxh3(key) * slots) >> 64


# --- Plans ---------------------------------------------------------------------------------------------------------


def share_out(total, members, balance):
    """Caps for members given as (weight, capacity)."""
    bound = set()
    while True:
        rest = total - sum(members[i][1] for i in bound)
        weights = sum(w for i, (w, _) in enumerate(members) if i not in bound)
        new = {i for i, (w, c) in enumerate(members) if i not in bound and c * weights < w * rest}
        if not new:
            break
        bound |= new
    caps = []
    for i, (w, c) in enumerate(members):
        if i in bound:
            caps.append(c)
        else:
            caps.append(min(c, max(-(-w * rest // weights), w * rest * balance // (1000 * weights))))
    return caps


class Plan:
    def __init__(self, q):
        self.q = q
        self.nodes = {n["name"]: n for n in q["nodes"]}
        self.node_hashes = {name: node_hash(name) for name in self.nodes}
        self.shard_hashes = {name: shard_hash(q["group"], name) for name in q["shards"]}
        self.pairs = {shard: self.pairs_of(shard) for shard in q["shards"]}
        self.to = {shard: None for shard in q["shards"]}
        self.pinned = set()

    def capacity(self, name):
        capacity = self.nodes[name]["capacity"]
        return NO_CAPACITY if capacity is None else capacity

    def declines(self, node, shard):
        return node in self.q["declines"].get(shard, [])

    def hash(self, shard, node):
        return pair_hash(self.shard_hashes[shard], self.node_hashes[node])

    def pairs_of(self, shard):
        eligible = [n for n in self.nodes if self.nodes[n]["weight"] > 0 and self.capacity(n) > 0]
        return self.ordered([(shard, node) for node in eligible if not self.declines(node, shard)])

    def ordered(self, pairs):
        zones = self.q["zones"]

        def compare(a, b):
            (shard_a, a), (shard_b, b) = a, b
            node_a, node_b = self.nodes[a], self.nodes[b]
            if isinstance(zones, dict):
                tier = (node_a["zone"] != zones["prefer"]) - (node_b["zone"] != zones["prefer"])
                if tier:
                    return tier
            hash_a, hash_b = self.hash(shard_a, a), self.hash(shard_b, b)
            score_a, score_b = cost(hash_a) * node_b["weight"], cost(hash_b) * node_a["weight"]
            key_a = (score_a, -hash_a, a.encode(), shard_a.encode())
            key_b = (score_b, -hash_b, b.encode(), shard_b.encode())
            return (key_a > key_b) - (key_a < key_b)

        return sorted(pairs, key=cmp_to_key(compare))

    def rank(self, shard):
        names = [node for _, node in self.pairs[shard]]
        pin = self.q["pins"].get(shard)
        if pin in self.nodes and not self.declines(pin, shard) and self.capacity(pin) > 0:
            names = [pin] + [name for name in names if name != pin]
        return names

    def count(self, names):
        return sum(1 for node in self.to.values() if node in names)

    def pin(self):
        for name in self.nodes:
            wanted = [s for s in self.to if self.q["pins"].get(s) == name and not self.declines(name, s)]
            wanted.sort(key=lambda shard: (-self.hash(shard, name), shard.encode()))
            for shard in wanted[:self.capacity(name)]:
                self.to[shard] = name
                self.pinned.add(shard)

    def limit(self):
        members = [name for name in self.nodes if self.nodes[name]["weight"] > 0]
        self.caps = {name: 0 for name in self.nodes}
        self.quotas = {}
        total = len(self.to) - self.count([name for name in self.nodes if name not in members])
        zone = lambda name: self.nodes[name]["zone"]
        rule = self.q["zones"]
        if rule == "ignore":
            self.fill(total, members)
        elif rule == "spread":
            zones = {}
            for name in members:
                zones.setdefault(zone(name), []).append(name)
            together = [
                (sum(self.nodes[n]["weight"] for n in names), self.together(names)) for names in zones.values()
            ]
            for (key, names), quota in zip(zones.items(), share_out(total, together, 1000)):
                self.quotas[key] = (quota, names)
                self.fill(quota, names)
        else:
            inside = [name for name in members if zone(name) == rule["prefer"]]
            outside = [name for name in members if name not in inside]
            first = min(self.together(inside), total - self.count(outside))
            self.fill(first, inside)
            self.fill(total - first, outside)

    def together(self, names):
        return min(sum(self.capacity(name) for name in names), NO_CAPACITY)

    def fill(self, total, names):
        shares = [(self.nodes[name]["weight"], self.capacity(name)) for name in names]
        self.caps.update(zip(names, share_out(total, shares, self.q["balance"])))

    def go_through(self, fits):
        free = [pair for shard in self.to if self.to[shard] is None for pair in self.pairs[shard]]
        for shard, node in self.ordered(free):
            if self.to[shard] is None and fits(node):
                self.to[shard] = node

    def fits_caps(self, node):
        if self.count([node]) >= self.caps[node]:
            return False
        zone = self.nodes[node]["zone"]
        return zone not in self.quotas or self.count(self.quotas[zone][1]) < self.quotas[zone][0]

    def has_room(self, node):
        return self.count([node]) < self.capacity(node)

    def repair(self, shard):
        reached_by, queue = {}, []

        def reach(asker):
            for _, node in self.pairs[asker]:
                if node not in reached_by:
                    reached_by[node] = asker
                    if self.has_room(node):
                        return node
                    queue.append(node)
            return None

        end = reach(shard)
        while end is None and queue:
            full = queue.pop(0)
            held = [s for s, node in self.to.items() if node == full and s not in self.pinned]
            for asker in sorted(held, key=str.encode):
                end = reach(asker)
                if end is not None:
                    break
        while end is not None:
            mover = reached_by[end]
            end, self.to[mover] = self.to[mover], end

    def place(self):
        self.pin()
        self.limit()
        self.go_through(self.fits_caps)
        self.go_through(self.has_room)
        for shard in sorted((s for s in self.to if self.to[s] is None), key=str.encode):
            self.repair(shard)
        return [self.to[shard] for shard in self.q["shards"]]


# --- Checking ------------------------------------------------------------------------------------------------------


def main():
    vectors = json.loads((Path(__file__).parent / "placement-vectors.json").read_text())
    checked, wrong = 0, []

    def check(what, expected, found):
        nonlocal checked
        checked += 1
        if expected != found:
            wrong.append(f"{what}: {found} is not {expected}")

    check("algorithm", vectors["algorithm"], "rendezvous/1")
    for v in vectors["hashes"]:
        data = bytes.fromhex(v["bytes"])
        check(f"hash of {len(data)} bytes", v["hash"], f"{xxh3(data):016x}")
    for v in vectors["names"]:
        found = node_hash(v["node"]) if "node" in v else shard_hash(*v["shard"].split("/", 1))
        check(f"hash of {v}", v["hash"], f"{found:016x}")
    for v in vectors["pairs"]:
        check(f"pair {v}", v["hash"], f"{pair_hash(int(v['shard'], 16), int(v['node'], 16)):016x}")
    for v in vectors["log2"]:
        check(f"table entry {v['index']}", int(v["value"]), T[v["index"]])
    for v in vectors["costs"]:
        check(f"cost of {v['hash']}", int(v["cost"]), cost(int(v["hash"], 16)))
    for v in vectors["slots"]:
        check(f"slot {v}", v["slot"], slot(bytes.fromhex(v["key"]), v["slots"]))
    for v in vectors["plans"]:
        plan = Plan(v)
        check(f"plan {v['what']!r}", v["to"], plan.place())
        check(f"caps of {v['what']!r}", v["caps"], list(plan.caps.values()))
        check(f"ranks of {v['what']!r}", v["ranks"], [plan.rank(shard) for shard in v["shards"][:5]])
    for problem in wrong:
        print(problem)
    print(f"{checked} vectors checked, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
