#!/usr/bin/env python3
"""check_perfetto.py TRACE.pftrace TRACE.json: decodes a trace in Perfetto's format with the fields
of its published schema, and compares it with the JSON trace of the same run.

The decoder is strict: each field has a known number and wire type, or the trace is wrong. It keeps
to what a reader of Perfetto does: packets refer to tracks and interned texts that came before them;
slices of a track are properly nested when packets are sorted by time, with equal times in the order
of the file; flows that end have begun earlier.
"""
import collections
import decimal
import json
import struct
import sys

# Fields by message: number: (name, wire type, message or None). From perfetto/trace/*.proto.
VARINT, FIXED64, BYTES = 0, 1, 2
ANNOTATION = {1: ("name_iid", VARINT), 2: ("bool_value", VARINT), 3: ("uint_value", VARINT),
              6: ("string_value", BYTES), 17: ("string_value_iid", VARINT)}
ANNOTATION[11] = ("dict_entries", BYTES, ANNOTATION)
ANNOTATION[12] = ("array_values", BYTES, ANNOTATION)
INTERNED = {1: ("iid", VARINT), 2: ("text", BYTES)}
SCHEMA = {1: ("packet", BYTES, {
    8: ("timestamp", VARINT),
    10: ("trusted_packet_sequence_id", VARINT),
    11: ("track_event", BYTES, {
        3: ("category_iids", VARINT),
        4: ("debug_annotations", BYTES, ANNOTATION),
        9: ("type", VARINT),
        10: ("name_iid", VARINT),
        11: ("track_uuid", VARINT),
        44: ("double_counter_value", FIXED64),
        47: ("flow_ids", FIXED64),
        48: ("terminating_flow_ids", FIXED64),
    }),
    12: ("interned_data", BYTES, {
        1: ("event_categories", BYTES, INTERNED),
        2: ("event_names", BYTES, INTERNED),
        3: ("debug_annotation_names", BYTES, INTERNED),
        29: ("debug_annotation_string_values", BYTES, INTERNED),
    }),
    13: ("sequence_flags", VARINT),
    60: ("track_descriptor", BYTES, {
        1: ("uuid", VARINT),
        2: ("name", BYTES),
        3: ("process", BYTES, {1: ("pid", VARINT), 6: ("process_name", BYTES),
                               8: ("process_labels", BYTES)}),
        5: ("parent_uuid", VARINT),
        8: ("counter", BYTES, {6: ("unit_name", BYTES)}),
        11: ("child_ordering", VARINT),
        12: ("sibling_order_rank", VARINT),
    }),
})}
REPEATED = {"packet", "category_iids", "debug_annotations", "flow_ids", "terminating_flow_ids",
            "dict_entries", "array_values", "process_labels"}
SLICE_BEGIN, SLICE_END, COUNTER = 1, 2, 4
CLEARED, NEEDS_STATE = 1, 2


def fail(text):
    sys.exit(f"check_perfetto.py: {text}")


def read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            fail("a varint is too long")


def decode(data, fields):
    """A message as a dict; repeated fields are lists."""
    message, at = collections.defaultdict(list), 0
    while at < len(data):
        tag, at = read_varint(data, at)
        number, wire = tag >> 3, tag & 7
        if number not in fields:
            fail(f"field {number} is not one of {[f[0] for f in fields.values()]}")
        name, expected, *inner = fields[number]
        if wire != expected:
            fail(f"field {name} has wire type {wire}")
        if wire == VARINT:
            value, at = read_varint(data, at)
        elif wire == FIXED64:
            value, at = data[at:at + 8], at + 8
        else:
            size, at = read_varint(data, at)
            value, at = data[at:at + size], at + size
            if len(value) != size:
                fail(f"field {name} is cut off")
            value = decode(value, inner[0]) if inner else value.decode("utf-8")
        if name in REPEATED or fields is SCHEMA[1][2][12][2]:
            message[name].append(value)
        elif name in message:
            fail(f"field {name} is there twice")
        else:
            message[name] = value
    return message


class Reader:
    """Packets one by one, with the state of their sequence."""

    def __init__(self):
        self.tables = None
        self.tracks = {}
        self.events = []  # (timestamp, index in the file, type, track, event)

    def read(self, packet):
        flags = packet["sequence_flags"]
        if packet["trusted_packet_sequence_id"] != 1 or not flags & NEEDS_STATE:
            fail("a packet is not of the sequence")
        if flags & CLEARED:
            self.tables = collections.defaultdict(dict)
        if self.tables is None:
            fail("the first packet does not begin the state of the sequence")
        for table, entries in (packet.get("interned_data") or {}).items():
            for entry in entries:
                if entry["iid"] == 0 or entry["iid"] in self.tables[table]:
                    fail(f"{table}: number {entry['iid']} is 0 or was given")
                self.tables[table][entry["iid"]] = entry.get("text", "")
        if "track_descriptor" in packet:
            self.add_track(packet["track_descriptor"])
        elif "track_event" in packet:
            self.add_event(packet["timestamp"] if "timestamp" in packet else None,
                           packet["track_event"])
        else:
            fail("a packet has neither a track nor an event")

    def add_track(self, track):
        if track["uuid"] == 0 or track["uuid"] in self.tracks:
            fail(f"track {track['uuid']} is there twice")
        if "process" not in track and track["parent_uuid"] not in self.tracks:
            fail(f"track {track['name']} has no parent")
        self.tracks[track["uuid"]] = track

    def add_event(self, time, event):
        if time is None or event["track_uuid"] not in self.tracks:
            fail("an event has no time or no track")
        if ("counter" in self.tracks[event["track_uuid"]]) != (event["type"] == COUNTER):
            fail("a counter has a slice, or a thread a value")
        event["annotations"] = self.annotations(event["debug_annotations"])
        if event["type"] == SLICE_BEGIN:
            event["name"] = self.tables["event_names"][event["name_iid"]]
            event["category"] = self.tables["event_categories"][event["category_iids"][0]]
        self.events.append((time, len(self.events), event))

    def annotations(self, entries):
        return {self.tables["debug_annotation_names"][e["name_iid"]]: self.value(e)
                for e in entries}

    def value(self, entry):
        if "string_value_iid" in entry:
            return self.tables["debug_annotation_string_values"][entry["string_value_iid"]]
        if "dict_entries" in entry:
            return self.annotations(entry["dict_entries"])
        if "array_values" in entry:
            return [self.value(e) for e in entry["array_values"]]
        if "bool_value" in entry:
            return entry["bool_value"] == 1
        return entry["uint_value"] if "uint_value" in entry else entry["string_value"]

    def process_of(self, uuid):
        track = self.tracks[uuid]
        while "process" not in track:
            track = self.tracks[track["parent_uuid"]]
        return track["process"]["pid"]


def read_packets(path):
    reader = Reader()
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        if tag != 1 << 3 | BYTES:
            fail(f"the file has a field {tag >> 3} of type {tag & 7}")
        size, at = read_varint(data, at)
        reader.read(decode(data[at:at + size], SCHEMA[1][2]))
        at += size
    return reader


def check_nesting(reader):
    """Slices and flows as a reader pairs them. Returns slices as (process, track's name, category,
    title, start, end, arguments), and the flows that ended."""
    open_slices, begun, slices, flows = collections.defaultdict(list), {}, [], 0
    ids = lambda event, key: [struct.unpack("<Q", i)[0] for i in event[key]]
    for time, _, event in sorted(reader.events, key=lambda e: e[:2]):
        track = event["track_uuid"]
        for flow in ids(event, "flow_ids"):
            begun[flow] = time
        if event["type"] == SLICE_BEGIN:
            open_slices[track].append(event)
        for flow in ids(event, "terminating_flow_ids"):
            if flow in begun:
                flows += 1
        if event["type"] == SLICE_END:
            if not open_slices[track]:
                fail("a slice ends that has not begun")
            begin = open_slices[track].pop()
            args = dict(begin["annotations"])
            start, end = args.pop("start_fs"), args.pop("end_fs")
            if time != end // 1000000:
                fail("times of a slice are not rounded down")
            slices.append((reader.process_of(track), reader.tracks[track]["name"],
                           begin["category"], begin["name"], start, end, args))
    if any(open_slices.values()):
        fail("a slice has no end")
    return slices, flows


def read_json(path):
    with open(path, encoding="utf-8") as file:
        events = json.load(file, parse_float=decimal.Decimal)["traceEvents"]
    names, slices, flows, counters = {}, [], 0, collections.defaultdict(list)
    fs = lambda us: int(us.scaleb(9))
    for e in events:
        if e["ph"] == "M" and e["name"] == "thread_name":
            names[e["pid"], e["tid"]] = e["args"]["name"]
        elif e["ph"] == "X":
            start = fs(e["ts"])
            slices.append((e["pid"], names[e["pid"], e["tid"]], e["cat"], e["name"], start,
                           start + fs(e["dur"]), e["args"]))
        elif e["ph"] == "s":
            flows += 1
        elif e["ph"] == "C":
            ((unit, value),) = e["args"].items()
            counters[e["pid"], e["name"], unit].append((fs(e["ts"]) // 1000000, float(value)))
    return slices, flows, counters


def read_counters(reader):
    counters = collections.defaultdict(list)
    for time, _, event in reader.events:
        if event["type"] == COUNTER:
            track = reader.tracks[event["track_uuid"]]
            (value,) = struct.unpack("<d", event["double_counter_value"])
            key = reader.process_of(track["uuid"]), track["name"], track["counter"]["unit_name"]
            counters[key].append((time, value))
    return counters


def main(perfetto, chrome):
    decimal.getcontext().prec = 50
    reader = read_packets(perfetto)
    slices, flows = check_nesting(reader)
    expected_slices, expected_flows, expected_counters = read_json(chrome)
    key = lambda s: (s[4], s[5], s[0], s[1], s[3], str(s[6]))
    for ours, theirs in zip(sorted(slices, key=key), sorted(expected_slices, key=key)):
        if ours != theirs:
            fail(f"slices differ: {ours} and {theirs}")
    if len(slices) != len(expected_slices) or flows != expected_flows:
        fail(f"{len(slices)} slices and {flows} flows, in JSON {len(expected_slices)} and "
             f"{expected_flows}")
    counters = read_counters(reader)
    if counters != expected_counters:
        fail("counters differ")
    print(f"{len(slices)} slices, {flows} flows, {len(counters)} counters")


if __name__ == "__main__":
    main(*sys.argv[1:])
