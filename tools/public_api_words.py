"""One line for each public item, from what rustdoc says of a crate (its JSON format)."""

import re

DERIVED_AWAY = {"StructuralPartialEq", "Freeze", "Unpin", "UnsafeUnpin", "UnwindSafe", "RefUnwindSafe"}


class Words:
    """A crate in words.

    >>> words = Words({"index": {}, "root": 0})
    >>> words.type({"borrowed_ref": {"lifetime": None, "is_mutable": True, "type": {"slice": {"primitive": "u8"}}}})
    '&mut [u8]'
    >>> path = {"path": "Option", "args": {"angle_bracketed": {"args": [{"type": {"generic": "T"}}], "constraints": []}}}
    >>> words.type({"resolved_path": path})
    'Option<T>'
    >>> words.type({"tuple": [{"primitive": "u8"}]}), words.type({"tuple": []})
    ('(u8,)', '()')
    """

    def __init__(self, crate):
        self.crate = crate
        self.index = {str(id): item for id, item in crate["index"].items()}
        self.lines = []

    def item(self, id):
        return self.index.get(str(id))

    def listing(self):
        """All lines, in order."""
        root = self.item(self.crate["root"])
        places = []
        self.walk(root, root["name"], places, ())
        home = {}
        for path, id in sorted(places, key=lambda place: (place[0].count("::"), place[0])):
            if id not in home:
                home[id] = path
                self.tell(path, self.item(id))
            elif home[id] != path:
                self.lines.append(f"pub use {path} = {home[id]}")
        # By path, so that what belongs together stands together.
        at = re.compile(r"\b" + re.escape(root["name"]) + r"(?:::\w+)*")
        return sorted(set(self.lines), key=lambda line: ((at.search(line) or [line])[0], line))

    def walk(self, module, path, places, above):
        """Notes where each item of a module can be reached."""
        for id in module["inner"]["module"]["items"]:
            item = self.item(id)
            if item is None:
                continue
            kind = next(iter(item["inner"]))
            if kind == "use":
                self.walk_use(item["inner"]["use"], path, places, above)
            elif item["visibility"] == "public":
                self.place(item, f"{path}::{item['name']}", places, above)
            elif kind == "macro":
                self.place(item, f"{path}::{item['name']}", places, above)

    def walk_use(self, use, path, places, above):
        target = self.item(use["id"]) if use["id"] is not None else None
        if use["is_glob"]:
            if target and "module" in target["inner"] and target["id"] not in above:
                self.walk(target, path, places, (*above, target["id"]))
            elif target and "enum" in target["inner"]:
                self.lines.append(f"pub use {path}::* = {target['name']}::*")
            elif not target:
                self.lines.append(f"pub use {path}::* = {use['source']}::*")
        elif target:
            self.place(target, f"{path}::{use['name']}", places, above)
        else:
            self.lines.append(f"pub use {path}::{use['name']} = {use['source']}")

    def place(self, item, path, places, above):
        places.append((path, str(item["id"])))
        if "module" in item["inner"] and item["id"] not in above:
            self.walk(item, path, places, (*above, item["id"]))

    def add(self, text, item=None):
        marks = "".join(f"#[{mark}] " for mark in self.marks(item)) if item else ""
        self.lines.append(marks + text)

    @staticmethod
    def marks(item):
        """Attributes that callers notice."""
        marks = ["deprecated"] if item.get("deprecation") else []
        for attribute in item.get("attrs", []):
            text = attribute if isinstance(attribute, str) else next(iter(attribute))
            marks += [word for word in ("non_exhaustive", "must_use") if word in text]
        return marks

    def tell(self, path, item):
        (kind, inner), = item["inner"].items()
        teller = getattr(self, f"tell_{kind}", None)
        if teller:
            teller(path, item, inner)
        else:
            self.add(f"pub {kind} {path}", item)

    def tell_module(self, path, item, _):
        self.add(f"pub mod {path}", item)

    def tell_struct(self, path, item, inner):
        shape, rest = inner["kind"], ""
        if isinstance(shape, dict) and "tuple" in shape:
            rest = "(" + ", ".join(self.field(id) for id in shape["tuple"]) + ")"
        elif isinstance(shape, dict):
            rest = " { .. }" if shape["plain"]["has_stripped_fields"] else ""
            self.fields(path, shape["plain"]["fields"])
        self.add(f"pub struct {path}{self.generics(inner['generics'])}{rest}{self.where(inner['generics'])}", item)
        self.impls(path, inner["impls"])

    tell_union = tell_struct

    def field(self, id):
        item = self.item(id) if id is not None else None
        return self.type(item["inner"]["struct_field"]) if item else "_"

    def fields(self, path, ids):
        for id in ids:
            item = self.item(id)
            self.add(f"pub field {path}::{item['name']}: {self.type(item['inner']['struct_field'])}", item)

    def tell_enum(self, path, item, inner):
        self.add(f"pub enum {path}{self.generics(inner['generics'])}{self.where(inner['generics'])}", item)
        for id in inner["variants"]:
            variant = self.item(id)
            shape, name = variant["inner"]["variant"]["kind"], f"{path}::{variant['name']}"
            rest = ""
            if isinstance(shape, dict) and "tuple" in shape:
                rest = "(" + ", ".join(self.field(each) for each in shape["tuple"]) + ")"
            elif isinstance(shape, dict):
                self.fields(name, shape["struct"]["fields"])
                rest = " {}"
            self.add(f"pub variant {name}{rest}", variant)
        self.impls(path, inner["impls"])

    def tell_trait(self, path, item, inner):
        bounds = self.bounds(inner["bounds"])
        unsafe = "unsafe " if inner["is_unsafe"] else ""
        line = f"pub {unsafe}trait {path}{self.generics(inner['generics'])}{': ' + bounds if bounds else ''}"
        self.add(line + self.where(inner["generics"]), item)
        for id in inner["items"]:
            self.member(path, self.item(id), "provided " if self.has_body(id) else "required ")

    def has_body(self, id):
        (kind, inner), = self.item(id)["inner"].items()
        return {"function": lambda: inner["has_body"], "assoc_const": lambda: inner["value"] is not None}.get(
            kind, lambda: inner.get("type") is not None)()

    def tell_function(self, path, item, inner):
        self.add(f"pub {self.function(path, inner)}", item)

    def tell_constant(self, path, item, inner):
        self.add(f"pub const {path}: {self.type(inner['type'])}", item)

    def tell_static(self, path, item, inner):
        self.add(f"pub static {path}: {self.type(inner['type'])}", item)

    def tell_type_alias(self, path, item, inner):
        self.add(f"pub type {path}{self.generics(inner['generics'])} = {self.type(inner['type'])}", item)

    def tell_macro(self, path, item, _):
        self.add(f"pub macro {path}!", item)

    def impls(self, path, ids):
        for id in ids:
            item = self.item(id)
            if item:
                self.impl(path, item["inner"]["impl"])

    def impl(self, path, inner):
        if inner["blanket_impl"] is not None:
            return
        trait = inner["trait"]
        if trait is None:
            for id in inner["items"]:
                member = self.item(id)
                if member and member["visibility"] == "public":
                    self.member(path, member, "pub ")
            return
        name = trait["path"].rsplit("::", 1)[-1]
        if name in DERIVED_AWAY or (inner["is_synthetic"] and not inner["is_negative"]):
            return  # Auto traits are told where a type lacks them.
        negative = "!" if inner["is_negative"] else ""
        generics, where, target = self.generics(inner["generics"]), self.where(inner["generics"]), self.type(inner["for"])
        short = path.rsplit("::", 1)[-1]
        whole = path + target[len(short):] if re.match(re.escape(short) + r"\b", target) else f"{target} ({path})"
        self.add(f"impl{generics} {negative}{self.path(trait)} for {whole}{where}")
        for id in inner["items"]:
            member = self.item(id)
            if member and "assoc_type" in member["inner"] and not inner["is_synthetic"]:
                self.add(f"impl {name} for {path}: type {member['name']} = {self.type(member['inner']['assoc_type']['type'])}")

    def member(self, path, item, how):
        (kind, inner), = item["inner"].items()
        name = f"{path}::{item['name']}"
        if kind == "function":
            self.add(how + self.function(name, inner), item)
        elif kind == "assoc_const":
            self.add(f"{how}const {name}: {self.type(inner['type'])}", item)
        elif kind == "assoc_type":
            bounds = self.bounds(inner["bounds"])
            self.add(f"{how}type {name}{': ' + bounds if bounds else ''}", item)

    def function(self, path, inner):
        header, sig = inner["header"], inner["sig"]
        words = [word for word in ("const", "async", "unsafe") if header[f"is_{word}"]]
        inputs = ", ".join(self.argument(name, given) for name, given in sig["inputs"])
        output = f" -> {self.type(sig['output'])}" if sig["output"] else ""
        start = " ".join([*words, "fn"])
        return f"{start} {path}{self.generics(inner['generics'])}({inputs}){output}{self.where(inner['generics'])}"

    def argument(self, name, given):
        if name == "self":
            return {"Self": "self", "&Self": "&self", "&mut Self": "&mut self"}.get(text := self.type(given), f"self: {text}")
        return f"{name}: {self.type(given)}"

    def type(self, given):
        if given in ("infer", None):
            return "_"
        (kind, inner), = given.items()
        return getattr(self, f"type_{kind}")(inner)

    def type_resolved_path(self, inner):
        return self.path(inner)

    def type_dyn_trait(self, inner):
        bounds = [self.poly(each) for each in inner["traits"]] + ([inner["lifetime"]] if inner["lifetime"] else [])
        return "dyn " + " + ".join(bounds)

    def type_generic(self, inner):
        return inner

    type_primitive = type_generic

    def type_function_pointer(self, inner):
        inputs = ", ".join(self.type(given) for _, given in inner["sig"]["inputs"])
        output = inner["sig"]["output"]
        return f"fn({inputs})" + (f" -> {self.type(output)}" if output else "")

    def type_tuple(self, inner):
        return "(" + ", ".join(map(self.type, inner)) + ("," if len(inner) == 1 else "") + ")"

    def type_slice(self, inner):
        return f"[{self.type(inner)}]"

    def type_array(self, inner):
        return f"[{self.type(inner['type'])}; {inner['len']}]"

    def type_impl_trait(self, inner):
        return "impl " + self.bounds(inner)

    def type_raw_pointer(self, inner):
        return f"*{'mut' if inner['is_mutable'] else 'const'} {self.type(inner['type'])}"

    def type_borrowed_ref(self, inner):
        lifetime = inner["lifetime"] + " " if inner["lifetime"] else ""
        target = self.type(inner["type"])
        target = f"({target})" if target.startswith(("dyn ", "impl ")) and " + " in target else target
        return f"&{lifetime}{'mut ' if inner['is_mutable'] else ''}{target}"

    def type_qualified_path(self, inner):
        owner, trait = self.type(inner["self_type"]), inner["trait"]
        named = f"<{owner} as {self.path(trait)}>" if trait and trait["path"] else owner
        return f"{named}::{inner['name']}{self.args(inner['args'])}"

    def path(self, inner):
        # Derived code names traits by `$crate::clone::Clone`.
        path = inner["path"].rsplit("::", 1)[-1] if inner["path"].startswith("$crate") else inner["path"]
        return path + self.args(inner["args"])

    def args(self, inner):
        if not inner:
            return ""
        if isinstance(inner, str):
            return "(..)"
        (kind, inner), = inner.items()
        if kind == "parenthesized":
            output = inner["output"]
            return "(" + ", ".join(map(self.type, inner["inputs"])) + ")" + (f" -> {self.type(output)}" if output else "")
        found = [self.arg(each) for each in inner["args"]] + [self.constraint(each) for each in inner["constraints"]]
        return f"<{', '.join(found)}>" if found else ""

    def arg(self, inner):
        if isinstance(inner, str):
            return "_"
        (kind, inner), = inner.items()
        return {"lifetime": lambda: inner, "type": lambda: self.type(inner), "const": lambda: inner["expr"]}[kind]()

    def constraint(self, inner):
        (kind, binding), = inner["binding"].items()
        if kind == "constraint":
            return f"{inner['name']}: {self.bounds(binding)}"
        return f"{inner['name']} = {self.type(binding['type']) if 'type' in binding else binding['constant']['expr']}"

    def poly(self, inner):
        lifetimes = [param["name"] for param in inner["generic_params"]]
        return (f"for<{', '.join(lifetimes)}> " if lifetimes else "") + self.path(inner["trait"])

    def bounds(self, given):
        return " + ".join(filter(None, map(self.bound, given)))

    def bound(self, given):
        (kind, inner), = given.items()
        if kind == "trait_bound":
            return {"none": "", "maybe": "?", "maybe_const": "~const "}[inner["modifier"]] + self.poly(inner)
        return inner if kind == "outlives" else ""

    def generics(self, given):
        found = [text for text in map(self.param, given["params"]) if text]
        return f"<{', '.join(found)}>" if found else ""

    def param(self, given):
        (kind, inner), = given["kind"].items()
        if kind == "lifetime":
            outlives = " + ".join(inner["outlives"])
            return given["name"] + (f": {outlives}" if outlives else "")
        if kind == "const":
            return f"const {given['name']}: {self.type(inner['type'])}"
        if inner["is_synthetic"]:
            return ""
        bounds = self.bounds(inner["bounds"])
        default = f" = {self.type(inner['default'])}" if inner["default"] else ""
        return given["name"] + (f": {bounds}" if bounds else "") + default

    def where(self, given):
        found = []
        for predicate in given["where_predicates"]:
            (kind, inner), = predicate.items()
            if kind == "bound_predicate":
                found.append(f"{self.type(inner['type'])}: {self.bounds(inner['bounds'])}")
            elif kind == "lifetime_predicate":
                found.append(f"{inner['lifetime']}: {' + '.join(inner['outlives'])}")
        return f" where {', '.join(found)}" if found else ""
