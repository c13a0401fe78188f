// What a node has: as its machine says it, and as it is declared.
#include "manyworlds/mpmd/node_resources.hpp"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "launch/cpu_topology.hpp"
#include "mpmd/graph_units.hpp"
#include "mpmd/machine_memory.hpp"
#include "mpmd/machine_resources.hpp"
#include "mpmd/nvml.hpp"
#include "mpmd/visible_gpus.hpp"

namespace manyworlds::mpmd_tests {

using namespace detail;

namespace {

using words = std::vector<std::string>;

/// The GPUs of the fake NVML.
const std::string first_gpu = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";
const std::string second_gpu = "GPU-8932aaaa-0000-4106-c12f-20bd9faed9f6";
const std::string last_gpu = "GPU-5ab0cccc-0000-4106-c12f-20bd9faed9f6";

/// A machine as its files say it: two NUMA nodes with two CPUs each, and 64 GiB.
class written_machine {
 public:
  written_machine() {
    char name[] = "/tmp/mw-mpmd-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path_ = name;
    write("proc/meminfo", "MemFree: 1 kB\nMemTotal:       67108864 kB");
    write("sys/devices/system/node/node0/cpulist", "0-1");
    write("sys/devices/system/node/node2/cpulist", "2-3");
    write("sys/bus/pci/devices/0000:0f:00.0/numa_node", "-1");
    write("sys/bus/pci/devices/0000:2a:00.0/numa_node", "2");
  }
  written_machine(const written_machine&) = delete;
  written_machine& operator=(const written_machine&) = delete;
  ~written_machine() { std::filesystem::remove_all(path_); }

  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = path_ + '/' + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << '\n';
  }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] machine_view view(std::string nvml = FAKE_NVML) const {
    return {path_, {0, 1, 3}, std::move(nvml)};
  }

 private:
  std::string path_;
};

words names_of(const std::vector<gpu_resource>& gpus) {
  words names;
  for (const gpu_resource& each : gpus) names.push_back(each.uuid);
  return names;
}

words seen(std::string_view value) {
  words names;
  for (const visible_gpu& each :
       visible_gpus(value, {first_gpu, second_gpu, "", last_gpu}))
    names.push_back(each.name);
  return names;
}

std::string why_not_declared(const std::string& json) {
  node_resources node{"n", {{0, {0}}}, 1, {}, {}};
  const node_resources before = node;
  try {
    node.declare(json);
  } catch (const std::invalid_argument& e) {
    CHECK(node == before);
    return e.what();
  }
  return "";
}

std::string why_not_read(const std::string& json) {
  try {
    static_cast<void>(node_resources::from_json(json));
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "";
}

bool says(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

std::string list_of(std::size_t items, const std::string& item) {
  std::string list = "[";
  for (std::size_t i = 0; i < items; ++i) list += (i == 0 ? "" : ",") + item;
  return list + "]";
}

}  // namespace

TEST_SUITE_BEGIN("mpmd");

TEST_CASE("a node has the CPUs, the memory and the GPUs that its machine tells") {
  const written_machine machine;
  const node_resources node = find_resources("here", machine.view(), std::nullopt);
  CHECK(node.name == "here");
  CHECK(node.cpus == std::vector<cpu_group>{{0, {0, 1}}, {2, {3}}});
  CHECK(node.memory == std::uint64_t{64} << 30);
  CHECK(node.gpus == std::vector<gpu_resource>{{first_gpu, std::uint64_t{80} << 30, 0},
                                               {second_gpu, std::uint64_t{80} << 30, 2},
                                               {last_gpu, std::uint64_t{40} << 30, 0}});
  CHECK(node.text() == "here: 3 CPUs on 2 NUMA nodes, 64 GiB, 3 GPUs");
}

TEST_CASE("GPUs are those that CUDA_VISIBLE_DEVICES leaves, in its order") {
  const written_machine machine;
  const auto left = [&](std::string_view visible) {
    return find_resources("n", machine.view(), visible).gpus;
  };
  REQUIRE(names_of(left("3,0")) == words{last_gpu, first_gpu});
  CHECK(left("1").front().numa == 2);
  CHECK(left("").empty());
  const std::vector<gpu_resource> parts = left("MIG-GPU-8932aaaa/1/0,MIG-77");
  CHECK(names_of(parts) == words{"MIG-GPU-8932aaaa/1/0", "MIG-77"});
  CHECK(parts[0].numa == 2);
  CHECK(parts[0].memory == 0);
}

TEST_CASE("an entry of CUDA_VISIBLE_DEVICES that means no GPU ends the list") {
  CHECK(seen("0, 1 ,3") == words{first_gpu, second_gpu, last_gpu});
  CHECK(seen("1,4,0") == words{second_gpu});
  CHECK(seen("0,2,1") == words{first_gpu});
  CHECK(seen("0,-1,1") == words{first_gpu});
  CHECK(seen("0,1x,1") == words{first_gpu});
  CHECK(seen("0,,1") == words{first_gpu});
  CHECK(seen("-1").empty());
  CHECK(seen("NoDevFiles").empty());
  CHECK(seen("99999999999999999999999").empty());
  CHECK(seen("MIG-").empty());
}

TEST_CASE("the first characters of a UUID do where they are those of one GPU alone") {
  CHECK(seen("GPU-5") == words{last_gpu});
  CHECK(seen("GPU-8932a," + first_gpu) == words{second_gpu, first_gpu});
  CHECK(seen("GPU-8932,0").empty());
  CHECK(seen("GPU-").empty());
  CHECK(seen("gpu-5ab0").empty());
  CHECK(seen("GPU-5ab0d").empty());
}

TEST_CASE("a GPU that is named twice is not given away twice") {
  CHECK(seen("0," + first_gpu + ",1") == words{first_gpu});
  CHECK(seen("MIG-a,MIG-b,MIG-a,0") == words{"MIG-a", "MIG-b"});
}

TEST_CASE("where NVML is missing, or is not NVML, a node has no GPUs") {
  const written_machine machine;
  for (const char* library : {"/nowhere/libnvidia-ml.so.1", "libm.so.6"}) {
    CAPTURE(library);
    CHECK(find_resources("n", machine.view(library), std::nullopt).gpus.empty());
    CHECK(find_resources("n", machine.view(library), "MIG-7,0").gpus.empty());
  }
}

TEST_CASE("memory is limited by the control group, and by those that it is in") {
  constexpr std::uint64_t gib = std::uint64_t{1} << 30;
  const written_machine machine;
  const auto memory = [&] { return machine_memory(machine.path()) / gib; };
  CHECK(memory() == 64);

  machine.write("proc/self/cgroup", "0::/jobs/a");
  CHECK(memory() == 64);
  machine.write("sys/fs/cgroup/jobs/a/memory.max", "max");
  CHECK(memory() == 64);
  machine.write("sys/fs/cgroup/jobs/memory.max", std::to_string(8 * gib));
  CHECK(memory() == 8);
  machine.write("sys/fs/cgroup/jobs/a/memory.max", std::to_string(4 * gib));
  CHECK(memory() == 4);

  // Version 1, in a container that sees its own group as the topmost.
  machine.write("proc/self/cgroup", "3:cpu,memory:/docker/77\n2:cpuset:/x");
  machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(2 * gib));
  CHECK(memory() == 2);
  machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  CHECK(memory() == 64);
  machine.write("proc/self/cgroup", "3:memoryless:/\nrubbish\n:\n");
  machine.write("sys/fs/cgroup/memory.max", "1");
  CHECK(memory() == 64);

  machine.write("proc/meminfo", "MemTotal: much");
  CHECK_THROWS_AS(memory(), std::system_error);
}

TEST_CASE("this machine has the CPUs that this process is bound to, and memory") {
  const node_resources here = node_resources::of_this_machine("here", "");
  CHECK(here.cpu_count() == cpus_of_this_process().size());
  CHECK(here.memory > 0);
  CHECK(here.gpus.empty());
}

TEST_CASE("what is declared replaces what was found, and the rest stays") {
  node_resources node{"a", {{0, {0, 1}}}, 7, {{"GPU-1"}}, {"old"}};
  node.declare(R"({"cpus": [[0, 1], [], [4]], "memory": "64GiB"})");
  CHECK(node.cpus == std::vector<cpu_group>{{0, {0, 1}}, {2, {4}}});
  CHECK(node.memory == std::uint64_t{64} << 30);
  CHECK(names_of(node.gpus) == words{"GPU-1"});
  node.declare(R"({"name": "b", "labels": ["fast", "ssd"],
                   "gpus": [{"uuid": "GPU-2", "memory": 5, "numa": 1}, {"uuid": "x"}]})");
  CHECK(node.gpus == std::vector<gpu_resource>{{"GPU-2", 5, 1}, {"x", 0, 0}});
  CHECK(node.text() == "b: 3 CPUs on 2 NUMA nodes, 64 GiB, 2 GPUs, labels fast ssd");
  node.declare(R"({"gpus": [], "cpus": [[9]], "memory": 1610612736, "labels": []})");
  CHECK(node.text() == "b: 1 CPU, 1.5 GiB, 0 GPUs");
}

TEST_CASE("a declaration that is wrong is refused by the name of its field") {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"[]", "no JSON object"},
      {"{", "no JSON object"},
      {R"({"memroy": 1})",
       "\"memroy\": there is no such field; did you mean \"memory\"?"},
      {R"({"name": ""})", "name: it is empty"},
      {R"({"name": "a b"})", "name: it has a character"},
      {R"({"name": 7})", "name: it is no text"},
      {R"({"cpus": 4})", "cpus: it is no list"},
      {R"({"cpus": [0, 1]})", "cpus[0]: it is no list"},
      {R"({"cpus": [[0], [1, -1]]})", "cpus[1]: it is no whole number"},
      {R"({"cpus": [[0], [1.5]]})", "cpus[1]: it is no whole number"},
      {R"({"cpus": [[0], [65536]]})", "cpus[1]: 65536 is not below 65536"},
      {R"({"cpus": [[0, 1], [1]]})", "cpus[1]: CPU 1 stands twice"},
      {R"({"memory": "64 GiB"})", "memory: it is no number of bytes"},
      {R"({"memory": "99999999TiB"})", "memory: it is no number of bytes"},
      {R"({"memory": -1})", "memory: it is no number of bytes"},
      {R"({"gpus": {}})", "gpus: it is no list"},
      {R"({"gpus": [7]})", "gpus[0]: it is no object"},
      {R"({"gpus": [{"uuid": "a"}, {"memory": 1}]})", "gpus[1].uuid: it is empty"},
      {R"({"gpus": [{"uuid": "a,b"}]})", "gpus[0].uuid: it has a character"},
      {R"({"gpus": [{"uuid": "a"}, {"uuid": "a"}]})", "gpus[1].uuid: a stands twice"},
      {R"({"gpus": [{"uuid": "a", "numa": 1024}]})", "gpus[0].numa: 1024 is not below"},
      {R"({"gpus": [{"uuid": "a", "size": 3}]})", "gpus[0]: \"size\": there is no such"},
      {R"({"labels": "fast"})", "labels: it is no list"},
      {R"({"labels": ["a", 3]})", "labels[1]: it is no text"},
      {R"({"labels": ["a", "a"]})", "labels[1]: a stands twice"},
      {R"({"address": ""})", "address: it is empty"},
      {R"({"address": "a b"})", "address: it has a character"},
  };
  for (const auto& each : wrong) {
    CAPTURE(each.first);
    const std::string why = why_not_declared(each.first);
    CAPTURE(why);
    CHECK(says(why, each.second));
  }
}

TEST_CASE("what a node may have is bounded") {
  const std::string text_128(128, 'x');
  CHECK(why_not_declared(R"({"labels": [")" + text_128 + R"("]})").empty());
  CHECK(says(why_not_declared(R"({"labels": [")" + text_128 + R"(x"]})"),
             "labels[0]: it has 129 bytes, at most 128 are taken"));
  CHECK(says(why_not_declared(R"({"labels": )" + list_of(65, "\"a\"") + "}"),
             "labels: it has 65 items, at most 64 are taken"));
  CHECK(says(why_not_declared(R"({"gpus": )" + list_of(65, "{}") + "}"),
             "gpus: it has 65 items"));
  std::string cpus = "0";
  for (int i = 1; i < 4096; ++i) cpus += "," + std::to_string(i);
  CHECK(why_not_declared(R"({"cpus": [[)" + cpus + "]]}").empty());
  CHECK(says(why_not_declared(R"({"cpus": [[)" + cpus + "],[4096]]}"),
             "cpus: it has 4097 items, at most 4096 are taken"));
  CHECK(
      says(why_not_declared(R"({"cpus": )" + list_of(1025, "[]") + "}"), "cpus: it has"));
  CHECK(says(why_not_declared(std::string(300 << 10, ' ') + "{}"), "the text: it has"));
}

TEST_CASE("an agent's report reads back as it was") {
  const node_resources node{"rack1-7",
                            {{0, {0, 1}}, {3, {8, 9, 10}}},
                            std::uint64_t{3} << 40,
                            {{first_gpu, std::uint64_t{80} << 30, 3}, {"MIG-7", 0, 0}},
                            {"fast", "ssd"},
                            "10.0.0.7"};
  CHECK(node_resources::from_json(node.to_json()) == node);
  const node_resources small{"a", {}, 0, {}, {}};
  CHECK(node_resources::from_json(small.to_json()) == small);
}

TEST_CASE("a report of another version is read, and one out of bounds is not") {
  CHECK(node_resources::from_json(R"({"name": "a", "racks": [1], "memory": 5,
                                      "gpus": [{"uuid": "g", "speed": 9}]})") ==
        node_resources{"a", {}, 5, {{"g"}}, {}});
  CHECK(says(why_not_read(R"({"memory": 5})"), "name: it is empty"));
  CHECK(says(why_not_read(R"({"name": "a", "cpus": [[1, 1]]})"), "cpus[0]: CPU 1"));
  CHECK(says(why_not_read("\xff"), "no JSON object"));
  CHECK_THROWS_AS(static_cast<void>(node_resources{}.to_json()), std::invalid_argument);
  const node_resources far{"a", {{5000, {1}}}, 0, {}, {}};
  CHECK_THROWS_AS(static_cast<void>(far.to_json()), std::invalid_argument);
}

TEST_CASE("amounts of memory are told in their largest unit") {
  CHECK(byte_size_text(0) == "0 B");
  CHECK(byte_size_text(1023) == "1023 B");
  CHECK(byte_size_text(1024) == "1 KiB");
  CHECK(byte_size_text(std::uint64_t{3} << 29) == "1.5 GiB");
  CHECK(byte_size_text(std::uint64_t{4096} << 40) == "4096 TiB");
}

TEST_SUITE_END();

}  // namespace manyworlds::mpmd_tests
