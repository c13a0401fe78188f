// Graphs as files: what is read and written, and what is said of files that are wrong.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "manyworlds/mpmd/job_graph.hpp"

namespace mw = manyworlds;
using namespace std::chrono_literals;

namespace {

/// The file of the issue, with the roles that it names.
constexpr std::string_view serving = R"(
name = "serving"
[role.prefill]
run = ["./serving", "prefill"]
count = 2
[role.decode]
run = ["./serving", "decode"]
count = { min = 1, start = 2, max = 4 }
needs = { cpus = 1, memory = "2GiB" }     # gpus = 1 where there are some
restart = { when = "failure", tries = 3, per = "1m" }
[edge.kv]
from = "prefill"
to = "decode"
kind = "bulk"       # bulk | calls
shape = "pairs"     # pairs | aligned | group
on_loss = "reform"  # reform | restart_together
[[place]]
roles = ["prefill", "decode"]
rule = "apart"      # together | apart | pack | spread | exclusive
level = "node"      # node | gpu
)";

std::vector<mw::graph_objection> faults_of(std::string_view text) {
  try {
    static_cast<void>(mw::job_graph::from_toml(text));
  } catch (const mw::graph_error& e) {
    return e.objections();
  }
  return {};
}

std::vector<mw::graph_objection> json_faults_of(std::string_view text) {
  try {
    static_cast<void>(mw::job_graph::from_json(text));
  } catch (const mw::graph_error& e) {
    return e.objections();
  }
  return {};
}

std::string all_of(const std::vector<mw::graph_objection>& found) {
  std::string all;
  for (const mw::graph_objection& each : found)
    all += each.text() + "   [" + each.field + "]\n";
  return all;
}

/// A wrong file. An '@' in the text stands before the place of the fault, and is not part
/// of it.
struct wrong_file {
  std::string_view text;
  std::string_view field;
  std::string_view what;
};

/// Claims that the text has that fault alone, at the place of the '@'.
template <class FaultsOf>
void claim_fault(const wrong_file& file, const std::string& source, FaultsOf faults) {
  CAPTURE(file.text);
  std::string text(file.text);
  const std::size_t mark = text.find('@');
  REQUIRE(mark != std::string::npos);
  text.erase(mark, 1);
  // Columns count characters, of which some have several bytes.
  std::size_t line = 1;
  std::size_t column = 1;
  for (const char c : text.substr(0, mark)) {
    if ((static_cast<unsigned char>(c) & 0xc0) == 0x80) continue;
    column = c == '\n' ? 1 : column + 1;
    if (c == '\n') ++line;
  }
  const auto found = faults(text);
  const std::string said = all_of(found);
  CAPTURE(said);
  REQUIRE(found.size() == 1);
  const std::string place =
      source + ":" + std::to_string(line) + ":" + std::to_string(column) + ": ";
  CHECK(found[0].text().substr(0, place.size()) == place);
  CHECK(found[0].field == file.field);
  CHECK(found[0].what.find(file.what) != std::string::npos);
}

constexpr wrong_file wrong_files[] = {
    // The text itself.
    {"name = @", "", "no TOML"},
    {"name = \"j\"\nname = @\"k\"\n", "", "cannot redefine"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\n@[role.a]\n", "", "cannot redefine"},
    {"name = \"j\"\n[role.a@\n", "", "no TOML"},
    {"name = \"j\"\nx = @\"\xff\"\n", "", "utf-8"},
    {"name = \"j\"\na.b.c.d.e.f.g.h.i@.j = 1\n", "", "nests deeper"},
    {"name = \"j\"\n[@$x]\nrun = 1\n", "", "no TOML: \"$\" may not stand here"},
    {"\"\xc3\xa4\".b.c.d.e.f.g.h.i@.j = 1\n", "", "nests deeper"},
    {"name = \"j\"\n[rol@\xc3\xa9]\nrun = 1\n", "", "no TOML"},
    // The job.
    {"@[role.a]\nrun = [\"./a\"]\n", "name", "the job has no name"},
    {"name = @3\n[role.a]\nrun = [\"./a\"]\n", "name", "name must be a text, is 3"},
    {"name = @\"my job\"\n[role.a]\nrun = [\"./a\"]\n", "name", "letters"},
    {"@name = \"j\"\n", "role", "the job has no role"},
    {"name = \"j\"\nrole = @3\n", "role", "role must be a table of roles"},
    {"name = \"j\"\n@roles = 1\n[role.a]\nrun = [\"./a\"]\n", "roles",
     "no field \"roles\"; did you mean \"role\"?"},
    {"name = \"j\"\n[restart]\ntries = @-1\n[role.a]\nrun = [\"./a\"]\n", "restart.tries",
     "restart.tries must be a whole number from 0 to 4096, is -1"},
    {"name = \"j\"\n[restart]\nper = @\"0s\"\n[role.a]\nrun = [\"./a\"]\n", "restart.per",
     "above zero"},
    // Roles.
    {"name = \"j\"\n@[role.a]\n", "role.a.run", "run names no program"},
    {"name = \"j\"\n[role.a]\nrun = @[]\n", "role.a.run", "run names no program"},
    {"name = \"j\"\n[role.a]\nrun = @\"./a\"\n", "role.a.run",
     "role \"a\": run must be a list of texts, is \"./a\""},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\", @1.5]\n", "role.a.run[1]",
     "run[1] must be a text, is 1.5"},
    {"name = \"j\"\n[role.a]\nrun = [@\"\"]\n", "role.a.run[0]", "is empty"},
    {"name = \"j\"\n[role.a]\n@rum = [\"./a\"]\n", "role.a.rum",
     "role \"a\": no field \"rum\"; did you mean \"run\"?"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\n@zzzzzz = 1\n", "role.a.zzzzzz",
     "no field \"zzzzzz\""},
    {"name = \"j\"\n@[role.\"a b\"]\nrun = [\"./a\"]\n", "role.\"a b\"", "letters"},
    {"name = \"j\"\n[role]\na = @[\"./a\"]\n", "role.a",
     "role \"a\" must be a table, is a list"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\nfolder = @true\n", "role.a.folder",
     "folder must be a text, is true"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\nenv = { X = \"1\", @Y = 2 }\n",
     "role.a.env.Y", "env: \"Y\" must be a text, is 2"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\nenv = { @\"X Y\" = \"1\" }\n",
     "role.a.env.\"X Y\"", "no name of a variable"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\ncount = @-1\n", "role.a.count",
     "count must be a whole number from 0 to 65536, is -1"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\ncount = @\"two\"\n", "role.a.count",
     "a number, or a table of min, start and max"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\ncount = @{ min = 1, max = 2 }\n",
     "role.a.count.start", "count.start is missing"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\ncount = { start = @-1 }\n",
     "role.a.count.start", "count.start must be a whole number"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\ncount = { start = @2, max = 1 }\n",
     "role.a.count.start", "count.start is 2, above max, 1"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\ncount = { start = 2, @most = 4 }\n",
     "role.a.count.most", "role \"a\": count: no field \"most\""},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\ncount = { min = @3, start = 2 }\n",
     "role.a.count.min", "count.min is 3, above start, 2"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\ncount = 3\nper_group = @2\n",
     "role.a.per_group", "does not divide"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\nper_group = @0\n", "role.a.per_group",
     "from 1 to 65536"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\nneeds = { memory = @\"2 gigs\" }\n",
     "role.a.needs.memory", "must be a size such as"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\nneeds = { @cpu = 1 }\n",
     "role.a.needs.cpu", "did you mean \"cpus\"?"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\nneeds = { gpus = @99999 }\n",
     "role.a.needs.gpus", "from 0 to 4096, is 99999"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\nneeds = { labels = [\"x\", @\"x\"] }\n",
     "role.a.needs.labels[1]", "stands there twice"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\nrestart = { when = @\"Failure\" }\n",
     "role.a.restart.when",
     "never, failure or always, is \"Failure\"; did you mean "
     "\"failure\"?"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\nrestart = @\"always\"\n", "role.a.restart",
     "restart must be a table, is \"always\""},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\nrestart = { per = @60 }\n",
     "role.a.restart.per", "a time such as \"500ms\", \"90s\" or \"1h30m\", is 60"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\nafter = [@\"b\"]\n", "role.a.after[0]",
     "role \"a\": after: no role \"b\""},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\nafter = @[\"b\"]\n[role.b]\nrun = "
     "[\"./b\"]\nafter = [\"a\"]\n",
     "role.a.after", "after: a -> b -> a is a circle"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\ndriver = @\"yes\"\n", "role.a.driver",
     "driver must be true or false, is \"yes\""},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\nkind = @\"smpd\"\n", "role.a.kind",
     "processes or spmd, is \"smpd\"; did you mean \"spmd\"?"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\nkind = \"spmd\"\ncount = @1\n",
     "role.a.count", "a controller and a worker"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\ncontroller = @\"b\"\n",
     "role.a.controller", "controller: no role \"b\""},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\nready = @\"soon\"\n", "role.a.ready",
     "started or told"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\nready_within = @\"0s\"\n",
     "role.a.ready_within", "above zero"},
    {"name = \"j\"\nabsence = @\"stop\"\n[role.a]\nrun = [\"./a\"]\n", "absence",
     "must be \"hold\", or a time"},
    {"name = \"j\"\nabsence = @\"1s\"\n[role.a]\nrun = [\"./a\"]\n", "absence",
     "at least 10s"},
    {"name = \"j\"\nabsence = @30\n[role.a]\nrun = [\"./a\"]\n", "absence",
     "must be \"hold\", or a time"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\ndrain = @\"48h\"\n", "role.a.drain",
     "at most 24h"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\ngrace = @1979-05-27\n", "role.a.grace",
     "is a date or a time"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\nhang_after = @\"1\"\n",
     "role.a.hang_after", "must be a time"},
    // Edges.
    {"name = \"j\"\nedge = @[]\n[role.a]\nrun = [\"./a\"]\n", "edge",
     "edge must be a table of edges"},
    {"name = \"j\"\n[role.decode]\nrun = [\"./a\"]\n[edge.kv]\nfrom = \"decode\"\n"
     "to = @\"decodes\"\nshape = \"group\"\n",
     "edge.kv.to", "edge \"kv\": no role \"decodes\"; did you mean \"decode\"?"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\n@[edge.kv]\nfrom = \"a\"\n", "edge.kv.to",
     "edge \"kv\": to is missing"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\n[edge.kv]\nfrom = \"a\"\nto = \"a\"\n"
     "kind = @\"queue\"\n",
     "edge.kv.kind", "bulk or calls, is \"queue\""},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\n[edge.kv]\nfrom = \"a\"\nto = \"a\"\n"
     "kind = \"calls\"\nshape = @\"group\"\n",
     "edge.kv.shape", "for edges of kind bulk"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\n[edge.kv]\nfrom = \"a\"\nto = \"a\"\n"
     "shape = @\"pair\"\n",
     "edge.kv.shape", "did you mean \"pairs\"?"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\n[edge.kv]\nfrom = \"a\"\nto = \"a\"\n"
     "shape = @\"aligned\"\n",
     "edge.kv.shape", "with itself"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\n[edge.kv]\nfrom = \"a\"\nto = \"a\"\n"
     "shape = \"group\"\n@lost = \"reform\"\n",
     "edge.kv.lost", "no field \"lost\""},
    // Rules of placement.
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\n@[[place]]\nroles = [\"a\"]\n",
     "place[0].rule", "place[0]: rule is missing"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\n[[place]]\nroles = [\"a\"]\nrule = "
     "\"pack\"\n@[[place]]\nrule = \"pack\"\n",
     "place[1].roles", "roles are missing"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\n[[place]]\nroles = [\"a\", @\"A\"]\nrule "
     "= \"spread\"\n",
     "place[0].roles[1]", "no role \"A\"; did you mean \"a\"?"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\n[[place]]\nroles = [\"a\"]\nrule = "
     "@\"near\"\n",
     "place[0].rule", "together, apart, pack, spread or exclusive, is \"near\""},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\n[[place]]\nroles = [\"a\"]\nrule = "
     "\"spread\"\nlevel = @\"rack\"\n",
     "place[0].level", "node or gpu"},
    {"name = \"j\"\n[role.a]\nrun = [\"./a\"]\n@[place]\nroles = [\"a\"]\n", "place",
     "a list of rules, each [[place]]"},
};

constexpr wrong_file wrong_json[] = {
    {"{\"name\": \"j\",\n \"role\": @}", "", "no JSON: while parsing value"},
    {"{\"name\": \"\xc3\xa4\", @}", "", "no JSON: while parsing object key"},
    {"@[1]", "", "must be a table, is a list"},
    {"{\"name\": \"j\",\n \"role\": {\"a\": {\"run\": [\"\xc3\xa4\"], @\"cout\": 1}}}",
     "role.a.cout", "did you mean \"count\"?"},
    {"{\"name\": \"j\", \"role\": {\"a\": {\"run\": [\"a\"], \"count\": @1e3}}}",
     "role.a.count", "is 1e3"},
    {"{\"name\": \"j\", \"role\": {\"a\": {\"run\": [\"\\\"]}\", @{\"b\": []}]}}}",
     "role.a.run[1]", "run[1] must be a text, is a table"},
    {"{\"name\": \"j\", \"role\": {\"a\": {\"run\": [\"a\"], @\"run\": [\"b\"]}}}", "",
     "\"run\" stands here for the second time"},
    {"{\"name\": \"j\", \"role\": {\"a\": {\"run\": [\"a\"], \"needs\":\n"
     "{\"gpus\": @18446744073709551615}}}}",
     "role.a.needs.gpus", "is 18446744073709551615"},
    {"{\"name\": \"j\", \"role\": {\"a\": {\"run\": @null}}}", "role.a.run",
     "is nothing"},
};

// ------------------------------------------------------------------------ Random graphs

/// Makes graphs with which nothing is wrong.
class random_graphs {
 public:
  explicit random_graphs(std::uint64_t seed) : random_(seed) {}

  mw::job_graph next() {
    mw::job_graph g(name());
    g.whole_job = {below(9), time(1)};
    const std::uint32_t roles = 1 + below(6);
    for (std::uint32_t i = 0; i < roles; ++i) add_role(g, i);
    for (std::uint32_t i = below(5); i > 0; --i) add_edge(g, i);
    if (below(2) == 0) {
      g.place({pick(g)},
              below(2) == 0 ? mw::place_rule::pack : mw::place_rule::exclusive);
    }
    return g;
  }

 private:
  std::uint32_t below(std::uint32_t end) {
    return std::uniform_int_distribution<std::uint32_t>(0, end - 1)(random_);
  }

  std::string name() {
    static constexpr std::string_view parts = "aBcXyZ019-_";
    std::string made(1, parts[below(6)]);
    for (std::uint32_t n = below(4); n > 0; --n) made += parts[below(11)];
    return made;
  }

  /// A text of characters that files write in other ways, if at all.
  std::string text() {
    static constexpr std::string_view parts[] = {"a",
                                                 " ",
                                                 "\"",
                                                 "'",
                                                 "\\",
                                                 "\n",
                                                 "\r",
                                                 "\t",
                                                 "\x01",
                                                 "\x7f",
                                                 "#",
                                                 "\"\"\"",
                                                 "'''",
                                                 "=",
                                                 "[",
                                                 "]",
                                                 "\xc2\x85",
                                                 "\xc3\xa4",
                                                 "\xe2\x80\xa8",
                                                 "\xef\xbb\xbf",
                                                 "\xef\xbf\xbf",
                                                 "\xf0\x9f\x98\x80",
                                                 "\xf4\x8f\xbf\xbf",
                                                 "\\u0041",
                                                 "\b",
                                                 "."};
    std::string made = "x";
    for (std::uint32_t n = below(6); n > 0; --n) made += parts[below(std::size(parts))];
    return made;
  }

  mw::duration time(std::uint32_t least) {
    static constexpr std::uint64_t units[] = {1, 1'000, 1'000'000, 1'000'000'000,
                                              60'000'000'000};
    return mw::duration(static_cast<std::int64_t>((least + below(90)) * units[below(5)]));
  }

  const std::string& pick(const mw::job_graph& g) {
    return g.roles()[below(static_cast<std::uint32_t>(g.roles().size()))].name;
  }

  void add_role(mw::job_graph& g, std::uint32_t index) {
    // Before it is added, so that there is no cycle.
    const std::string first = index > 0 && below(2) == 0 ? pick(g) : std::string();
    mw::graph_role& r = g.role(name() + std::to_string(index));
    r.run({text(), text(), ""});
    const std::uint32_t group = 1 + below(3);
    const std::uint32_t start = group * (1 + below(3));
    r.count(below(start + 1), start, start + group * below(3)).per_group = group;
    if (below(2) == 0) r.in_folder(text());
    if (below(2) == 0) r.variable("A", text()).variable("b_1", "");
    if (!first.empty()) r.after(first);
    if (!first.empty() && below(2) == 0) r.controller(first);
    if (below(2) == 0)
      r.need({below(8), random_() >> below(64), below(3), {"l", "m." + name()}});
    r.restart(static_cast<mw::restart_when>(below(3)), {below(5), time(1)});
    if (r.restarts != mw::restart_when::always && below(2) == 0) r.driver();
    if (start > 1 && below(2) == 0) r.session();
    if (below(2) == 0) r.waits_until_ready(time(1));
    r.drain_for = time(0);
    r.grace = time(0);
    r.hang_after = time(0);
  }

  void add_edge(mw::job_graph& g, std::uint32_t index) {
    mw::graph_edge& e = g.edge(name() + std::to_string(index), pick(g), pick(g));
    if (below(2) == 0) e.restart_together();
    if (below(3) == 0) {
      e.calls();
    } else if (below(2) == 0 || e.from == e.to) {
      e.bulk(mw::group);
    } else if (g.find_role(e.from)->counts.max == g.find_role(e.to)->counts.max) {
      e.bulk(mw::aligned);
    }
  }

  std::mt19937_64 random_;
};

}  // namespace

TEST_SUITE_BEGIN("mpmd");

TEST_CASE("graph B10: the issue's file reads as the graph that it describes") {
  const auto g = mw::job_graph::from_toml(serving);
  mw::job_graph same("serving");
  same.role("prefill").run({"./serving", "prefill"}).count(2);
  same.role("decode").run({"./serving", "decode"}).count(1, 2, 4);
  same.role("decode").need({.cpus = 1, .memory = std::uint64_t{2} << 30});
  same.edge("kv", "prefill", "decode").bulk(mw::pairs);
  same.place({"prefill", "decode"}, mw::place_rule::apart);
  CHECK(g == same);
  CHECK(g.roles()[0].name == "prefill");
  same.role("decode").grace = 11s;
  CHECK_FALSE(g == same);
}

TEST_CASE("graph B10: an absence is a time, or none") {
  auto g = mw::job_graph::from_toml(serving);
  CHECK_FALSE(g.absence);
  g.absence = 90s;
  for (const auto& same :
       {mw::job_graph::from_toml(g.to_toml()), mw::job_graph::from_json(g.to_json())}) {
    CHECK(same.absence == 90s);
    CHECK(same == g);
  }
  const auto held = mw::job_graph::from_toml("absence = \"hold\"" + std::string(serving));
  CHECK_FALSE(held.absence);
  CHECK_FALSE(held == g);
}

TEST_CASE("graph B10: what has its default is not written") {
  const auto g = mw::job_graph::from_toml(serving);
  CHECK(g.to_json() ==
        R"({"name":"serving", "role":{"prefill":{"run":["./serving", "prefill"], )"
        R"("count":2}, "decode":{"run":["./serving", "decode"], "count":{"min":1, )"
        R"("start":2, "max":4}, "needs":{"cpus":1, "memory":"2GiB"}}}, )"
        R"("edge":{"kv":{"from":"prefill", "to":"decode"}}, )"
        R"("place":[{"roles":["prefill", "decode"], "rule":"apart", "level":"node"}]})");
  CHECK(g.to_toml().find("[role.decode]\nrun = [\"./serving\", \"decode\"]\ncount = {min "
                         "= 1, start = 2, max = 4}\n") != std::string::npos);
}

TEST_CASE("graph B10: graphs of any kind read back equal from both languages") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    const mw::job_graph g = random_graphs(seed).next();
    const std::string wrong = all_of(g.check());
    CAPTURE(wrong);
    REQUIRE(wrong.empty());
    const std::string toml = g.to_toml();
    CAPTURE(toml);
    REQUIRE(faults_of(toml).empty());
    REQUIRE(mw::job_graph::from_toml(toml) == g);
    const std::string json = g.to_json();
    CAPTURE(json);
    REQUIRE(json_faults_of(json).empty());
    REQUIRE(mw::job_graph::from_json(json) == g);
  }
}

TEST_CASE("graph B10: roles keep the order of the file, and not that of their names") {
  const auto g = mw::job_graph::from_toml(
      "name = \"j\"\n[role.z]\nrun = [\"./z\"]\n[edge.y]\nfrom = \"z\"\nto = \"a\"\n"
      "[role.a]\nrun = [\"./a\"]\n[edge.b]\nfrom = \"a\"\nto = \"m\"\n"
      "[role.m]\nrun = [\"./m\"]\n");
  CHECK(g.start_order() == std::vector<std::string>{"z", "a", "m"});
  CHECK(g.edges()[0].name == "y");
  const auto same = mw::job_graph::from_json(
      R"({"role": {"z": {"run": ["./z"]}, "a": {"run": ["./a"]}}, "name": "j"})");
  CHECK(same.roles()[0].name == "z");
}

TEST_CASE("graph B71: letters of any language may follow the end of a line in a text") {
  // toml++ 3.3 takes them for unreachable there (its issue 190).
  const auto g = mw::job_graph::from_toml(
      "name = \"j\"\n[role.a]\nrun = [\"./a\", \"\"\"b\\\n  \xc3\xa9\"\"\"]\n");
  REQUIRE(g.roles().size() == 1);
  CHECK(g.roles()[0].command == std::vector<std::string>{"./a", "b\xc3\xa9"});
}

TEST_CASE("graph B71: forty wrong files, each fault with file, line and field") {
  CHECK(std::size(wrong_files) >= 40);
  for (const wrong_file& each : wrong_files) claim_fault(each, "job.toml", faults_of);
  for (const wrong_file& each : wrong_json) claim_fault(each, "job.json", json_faults_of);
}

TEST_CASE("graph B71: all faults of a file are said at once, in its order") {
  const auto found = faults_of(R"(nam = "j"
[role.a]
run = 3
per_group = "x"
[edge.e]
from = "b"
to = "c"
[[place]]
roles = ["d"]
rule = "pack"
[role.b]
run = ["./b"]
count = { start = 2, max = "x" }
)");
  std::vector<std::string> fields;
  for (const mw::graph_objection& each : found) fields.push_back(each.field);
  CAPTURE(all_of(found));
  CHECK(fields == std::vector<std::string>{"nam", "role.a.run", "role.a.per_group",
                                           "edge.e.to", "place[0].roles[0]",
                                           "role.b.count.max"});
}

TEST_CASE("graph B71: what follows from a fault is not said beside it") {
  // Counts that were not read differ from none, and roles that were not are not missed.
  for (const char* count : {"\"x\"", "{ start = 1, max = \"x\" }"}) {
    const auto found = faults_of(
        std::string("name = \"j\"\n[role.a]\nrun = [\"./a\"]\ncount = ") + count +
        "\n[role.b]\nrun = [\"./b\"]\ncount = 2\n[edge.e]\nfrom = \"a\"\nto = "
        "\"b\"\nshape = \"aligned\"\n[[place]]\nroles = [\"a\", \"b\"]\nrule = "
        "\"together\"\n");
    CAPTURE(all_of(found));
    CHECK(found.size() == 1);
  }
  CHECK(
      faults_of("name = \"j\"\nrole = 3\n[edge.e]\nfrom = \"a\"\nto = \"b\"\n").size() ==
      1);
  CHECK(faults_of("name = \"j\"\n[role.a]\nrum = [\"./a\"]\n").size() == 1);
}

TEST_CASE("errors show strangers' names so that terminals print them") {
  const auto found = faults_of(
      "name = \"j\"\n[role.a]\nrun = [\"./a\"]\nkind = \"\\u001b[2J\\u009b\"\n");
  REQUIRE(found.size() == 1);
  CHECK(found[0].what.find("is \"?[2J?\"") != std::string::npos);
  const auto cut = faults_of("name = \"j\"\n[role.a]\nrun = [\"./a\"]\nkind = \"" +
                             std::string(1000, 'x') + "\"\n");
  REQUIRE(cut.size() == 1);
  CHECK(cut[0].what.size() < 200);
}

TEST_CASE("texts without end, and without a bottom, are refused") {
  const std::string long_text(std::size_t{4} << 20 | 1, ' ');
  REQUIRE(faults_of(long_text).size() == 1);
  CHECK(faults_of(long_text)[0].what.find("has 4194305 bytes") != std::string::npos);
  CHECK(json_faults_of(long_text).size() == 1);
  std::string dots = "a";
  for (int i = 0; i < 1'000'000; ++i) dots += ".a";
  for (const std::string& deep :
       {dots + " = 1", "[" + dots + "]", "a = " + std::string(1'000'000, '['),
        "a = { " + dots + " = 1}"}) {
    REQUIRE(faults_of(deep).size() == 1);
    CHECK(faults_of(deep)[0].what.find("nests deeper") != std::string::npos);
  }
  const auto json = json_faults_of(std::string(1'000'000, '['));
  REQUIRE(json.size() == 1);
  CHECK(json[0].what.find("nests deeper") != std::string::npos);
  // Brackets and dots within texts and comments nest nothing.
  const std::string flat =
      "name = \"j\" # [[[[" + std::string(100, '[') + "\n[role.a]\nrun = [\"" +
      std::string(100, '.') + "\", '" + std::string(100, '{') + "', \"\"\"\\\"\n" +
      std::string(100, '[') + "\"\"\"\", \"" + std::string(100, '[') + "\"]\n";
  CHECK(all_of(faults_of(flat)) == "");
}

TEST_CASE("of a file of garbage at most a thousand faults are said") {
  std::string text = "name = \"j\"\n[role.a]\nrun = [\"./a\"]\n";
  for (int i = 0; i < 3000; ++i) text += "x" + std::to_string(i) + " = 1\n";
  const auto found = faults_of(text);
  REQUIRE(found.size() == 1001);
  CHECK(found.back().what == "and 2000 more behind this");
}

TEST_CASE("of many unknown fields some are told with what was meant") {
  std::string text = "name = \"j\"\n";
  for (int i = 0; i < 150; ++i)
    text += "[role.r" + std::to_string(i) + "]\nrun = [\"./a\"]\nrum = 1\n";
  const auto found = faults_of(text);
  CHECK(found.size() == 150);
  CHECK(std::count_if(found.begin(), found.end(), [](const mw::graph_objection& each) {
          return each.what.find("did you mean \"run\"?") != std::string::npos;
        }) == 100);
}

TEST_CASE("a byte order mark before a text is none of its columns") {
  const std::string mark = "\xef\xbb\xbf";
  for (const char* text : {"nam = 3\n", "name = = 3", "a.b.c.d.e.f.g.h.i.j = 1"}) {
    CAPTURE(text);
    CHECK(all_of(faults_of(text)) != "");
    CHECK(all_of(faults_of(mark + text)) == all_of(faults_of(text)));
  }
  for (const char* text : {R"({"nam": 3})", R"({"name": =})"}) {
    CAPTURE(text);
    CHECK(all_of(json_faults_of(text)) != "");
    CHECK(all_of(json_faults_of(mark + text)) == all_of(json_faults_of(text)));
  }
}

TEST_CASE("a file is read by its name's end, and one that is not there is an error") {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("graph_files_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const auto g = mw::job_graph::from_toml(serving);
  std::ofstream(folder / "job.json") << g.to_json();
  std::ofstream(folder / "job.toml") << g.to_toml();
  CHECK(mw::job_graph::from_file(folder / "job.json") == g);
  CHECK(mw::job_graph::from_file(folder / "job.toml") == g);
  std::ofstream(folder / "wrong.toml") << "nam = 1\n";
  try {
    static_cast<void>(mw::job_graph::from_file(folder / "wrong.toml"));
    FAIL("it was read");
  } catch (const mw::graph_error& e) {
    CHECK(std::string(e.what()).starts_with((folder / "wrong.toml:1:1: ").string()));
  }
  CHECK_THROWS_AS(static_cast<void>(mw::job_graph::from_file(folder / "none.toml")),
                  std::system_error);
  CHECK_THROWS_AS(static_cast<void>(mw::job_graph::from_file(folder)), std::system_error);
  std::ofstream(folder / "long.toml") << std::string(std::size_t{5} << 20, ' ');
  CHECK_THROWS_AS(static_cast<void>(mw::job_graph::from_file(folder / "long.toml")),
                  std::system_error);
  std::filesystem::remove_all(folder);
}

TEST_SUITE_END();
