"""The code in the comments of public headers compiles, and each public class that is more than a value has some.
snippets.py OUTPUT COMPILER...

A snippet is a block of lines that stand four spaces further right in a comment `///`. All are compiled as one
source behind snippets/prologue.hpp: what defines a class or a function as it is, all else inside of a coroutine. Those
of a class have 3 to 8 lines."""

import importlib.util
import pathlib
import re
import subprocess
import sys

here = pathlib.Path(__file__).resolve().parent
root = here.parents[1]
include = root / "include"
loaded = importlib.util.spec_from_file_location("reference", root / "src/package/reference.py")
reference = importlib.util.module_from_spec(loaded)
loaded.loader.exec_module(reference)

# Classes without a snippet, and why.
left_out = {
    "values: names of members, lanes and elements": "memory_place value_code alone_t to root any_rank from lane user_word device_stream small_float worker_list "
    "dtype_of ticket source_position inline_text store_keys signal_set socket_address incarnation version_number grace",
    "options: their fields are the usage": "algorithm_rule world_options runtime_options device_options accept_options "
    "connect_options call_server_options dispatch_options reply_feed_options tcp_store_options file_store_options "
    "etcd_store_options store_limits restart_policy pinned_pool_options simulation_options hosted_store_options job_options launch_options launch_store_options worker_streams rendezvous_options "
    "rendezvous_limits role_count role_needs retry_budget graph_role graph_edge graph_place role_call_options",
    "what operations and members give": "stored_tensor weight_range file_failure process_identity process_address undelivered_messages failure message "
    "message_info world_view world_event world_status worker_status received_signal device_costs error_count "
    "world_history transfer_counters dispatch_counters time_histogram turn_times simulated_event store_failure "
    "store_request store_reply store_entry etcd_entry etcd_listing etcd_outcome etcd_change etcd_changes exit_reason process_end "
    "output_line node_description round_node launch_result worker_failure job_event job_metric job_sink_place "
    "worker_text session_worker session_event graph_objection instance_id instance_place cpu_group gpu_resource peer_event "
    "job_status",
    "exceptions, which are caught": "weights_error value_error launch_error job_error rendezvous_error world_error store_error device_error timed_out stopped unknown_world file_error graph_error placement_error unknown_outcome",
    "policies, of one function": "least_depth",
    "the ABI of DLPack": "dlpack::tensor dlpack::managed_tensor dlpack::managed_tensor_versioned dlpack::release",
    "made and implemented by the library: users get references to them": "coordinator_seat executor continuation environment",
    "shown by log_sink": "stderr_log",
    "shown by role_methods": "role_call",
}
# The last two are for clang with Asio.
flags = """-std=c++20 -Wall -Wextra -Werror -Wno-unknown-warning-option -Wno-unused-variable
-Wno-unused-but-set-variable -Wno-subobject-linkage -DASIO_HAS_CO_AWAIT -DASIO_HAS_STD_COROUTINE"""
# What the others are written in, by header.
coroutines = {"asio.hpp": "asio::awaitable<void>", "resume_on.hpp": "foreign_task"}
code = re.compile(r"^ *///     ( *\S.*)$")
stands_alone = re.compile(r"(?:class|struct) |(?:(?:mw::)?task<|const mw::function_table& ).*\{$")


class Snippet:
    def __init__(self, header, line):
        self.header, self.line, self.lines = header, line, []

    def source(self, number):
        text = "\n".join(self.lines)
        where = f'#line {self.line} "{self.header}"'
        if stands_alone.match(self.lines[0]):
            return f"namespace snippet_{number} {{\n{where}\n{text}\n}}\n"
        returned = coroutines.get(self.header.name, "mw::task<void>")
        body = f"{returned} snippet_{number}() {{\n{where}\n{text}\n  co_return;\n}}\n"
        return body if "asio" not in returned else f"#if __has_include(<asio.hpp>)\n{body}#endif\n"


def snippets_of(header):
    found, last = [], None
    for number, line in enumerate(header.read_text().splitlines(), 1):
        match = code.match(line)
        if match:
            if not last:
                last = Snippet(header, number)
                found.append(last)
            last.lines.append(match[1])
        elif last and line.strip() == "///":
            last.lines.append("")
        else:
            last = None
    for each in found:
        while not each.lines[-1]:
            each.lines.pop()
    return found


def classes_of(text):
    """(name, comment) of the public classes."""
    for one in reference.declarations(reference.plainer(text).splitlines()):
        scope = reference.scope_of(one) if re.match(r"(?:class|struct)\b", one.bare()) else None
        if scope and "{" in one.head and one.scope == ("namespace", "manyworlds") and one.comment:
            yield scope[1], one.comment


def check_classes(headers):
    excused = {name for names in left_out.values() for name in names.split()}
    wrong, shown, seen = [], set(), set()
    for header, text in headers.items():
        inner = "dlpack::" if "namespace manyworlds::inline v0::dlpack {" in text else ""
        for unqualified, comment in classes_of(text):
            name = inner + unqualified
            seen.add(name)
            lines = [line for line in comment if code.match(line)]
            if lines:
                shown.add(name)
                if len(lines) < 3:
                    wrong.append(f"{header}: the snippet of {name} has {len(lines)} lines: at least 3")
            elif name not in excused:
                wrong.append(f"{header}: {name} has no snippet")
    odd = excused - seen | excused & shown
    wrong += [f"left_out: there is no class {name} without a snippet" for name in sorted(odd)]
    return wrong, shown, excused


def compile_all(compiler, output, snippets):
    source = pathlib.Path(output) / "snippets.cpp"
    source.parent.mkdir(parents=True, exist_ok=True)
    parts = [each.source(number) for number, each in enumerate(snippets)]
    source.write_text(f'#include "{here}/snippets/prologue.hpp"\nnamespace snippets {{\n{"".join(parts)}}}\n')
    command = [*compiler, *flags.split(), f"-I{include}", "-fsyntax-only", str(source)]
    ran = subprocess.run(command, capture_output=True, text=True)
    return ran.returncode, ran.stderr


def check_planted(compiler, output, headers, snippets):
    """A class without its snippet, and a snippet with a mistake, are found."""
    name = "manyworlds/world/world.hpp"
    without = {**headers, name: headers[name].replace("///     ", "/// ")}
    if f"{name}: world has no snippet" not in check_classes(without)[0]:
        yield "planted: a class without a snippet is not found"
    one = next(each for each in snippets if each.header.name == "world.hpp")
    one.lines = [line.replace("w.send(", "w.sent(") for line in one.lines]
    status, said = compile_all(compiler, pathlib.Path(output) / "planted", [one])
    if not status or f"world.hpp:{one.line + 2}:" not in said:
        yield f"planted: a snippet with a mistake is not found, or elsewhere:\n{said}"


def main():
    output, *compiler = sys.argv[1:]
    public = [h for h in sorted((include / "manyworlds").rglob("*.hpp")) if "detail" not in h.parts]
    headers = {str(h.relative_to(include)): h.read_text() for h in public}
    wrong, shown, excused = check_classes(headers)
    snippets = [each for header in public for each in snippets_of(header)]
    for each in snippets:
        lines = len([line for line in each.lines if line])
        if lines > 8:
            wrong.append(f"{each.header}:{each.line}: a snippet of {lines} lines: at most 8")
    status, said = compile_all(compiler, output, snippets)
    if status:
        wrong.append(said)
    wrong += check_planted(compiler, output, headers, snippets)
    print("\n".join(wrong))
    print(f"{len(snippets)} snippets, {len(shown)} classes with and {len(excused)} without one")
    return bool(wrong)


sys.exit(main())
