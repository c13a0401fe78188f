// On which CPUs workers are bound, by topologies as kernels describe them.
#include "launch/cpu_topology.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "process_fixture.hpp"

using namespace manyworlds;
using namespace manyworlds::detail;
using launch_tests::own_folder;

namespace {

using numbers = std::vector<unsigned>;

/// A machine as its files say it.
class recorded_machine {
 public:
  void write(const std::string& file, const std::string& line) {
    const std::filesystem::path path = folder_.path() + "/" + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << line << '\n';
  }
  void add_cpu(unsigned number, unsigned socket, const std::string& siblings,
               const std::string& sharing) {
    const std::string cpu = "sys/devices/system/cpu/cpu" + std::to_string(number) + "/";
    write(cpu + "topology/physical_package_id", std::to_string(socket));
    write(cpu + "topology/thread_siblings_list", siblings);
    write(cpu + "cache/index0/type", "Data");
    write(cpu + "cache/index0/level", "1");
    write(cpu + "cache/index0/shared_cpu_list", siblings);
    write(cpu + "cache/index1/type", "Instruction");
    write(cpu + "cache/index1/level", "9");
    write(cpu + "cache/index1/shared_cpu_list", "0-1000");
    write(cpu + "cache/index3/type", "Unified");
    write(cpu + "cache/index3/level", "3");
    write(cpu + "cache/index3/shared_cpu_list", sharing);
  }
  void add_node(unsigned number, const std::string& cpus) {
    write("sys/devices/system/node/node" + std::to_string(number) + "/cpulist", cpus);
  }
  void add_gpu(const std::string& address, const std::string& uuid, int node) {
    write("proc/driver/nvidia/gpus/" + address + "/information",
          "Model: \t H100\nGPU UUID: \t " + uuid);
    write("sys/bus/pci/devices/" + address + "/numa_node", std::to_string(node));
  }
  [[nodiscard]] cpu_topology read(const numbers& allowed,
                                  std::optional<std::string> visible = {}) const {
    return read_cpu_topology(folder_.path(), allowed, visible);
  }

 private:
  own_folder folder_;
};

numbers up_to(unsigned count) {
  numbers all(count);
  for (unsigned i = 0; i < count; ++i) all[i] = i;
  return all;
}

/// Two EPYC processors set to two NUMA nodes each: 16 cores with two threads; the
/// second threads are counted behind all first ones. Four cores share a cache.
void describe_two_sockets(recorded_machine& machine) {
  for (unsigned core = 0; core < 16; ++core) {
    const std::string threads = std::to_string(core) + "," + std::to_string(core + 16);
    const unsigned first = core / 4 * 4;
    const auto four = [](unsigned from) {
      return std::to_string(from) + "-" + std::to_string(from + 3);
    };
    const std::string cache = four(first) + "," + four(first + 16);
    machine.add_cpu(core, core / 8, threads, cache);
    machine.add_cpu(core + 16, core / 8, threads, cache);
  }
  machine.add_node(0, "0-3,16-19");
  machine.add_node(1, "4-7,20-23");
  machine.add_node(2, "8-11,24-27");
  machine.add_node(3, "12-15,28-31");
}

}  // namespace

TEST_SUITE_BEGIN("launch: CPUs of workers");

TEST_CASE("lists of the kernel are read") {
  CHECK(numbers_in_ranges("0-2,4,6-7") == numbers{0, 1, 2, 4, 6, 7});
  CHECK(numbers_in_ranges("5\n") == numbers{5});
  for (const char* odd : {"", "-1", "x", "3-", "99999999999", "0-99999999"}) {
    CAPTURE(odd);
    CHECK(numbers_in_ranges(odd).empty());
  }
}

TEST_CASE("a worker is bound to the NUMA node, or the socket, of its GPU") {
  recorded_machine recorded;
  describe_two_sockets(recorded);
  recorded.add_gpu("0000:81:00.0", "GPU-c", 2);
  recorded.add_gpu("0000:21:00.0", "GPU-b", 1);
  recorded.add_gpu("0000:01:00.0", "GPU-a", 0);
  recorded.add_gpu("0000:c1:00.0", "GPU-d", 3);
  const cpu_topology machine = recorded.read(up_to(32));
  CHECK(machine.gpu_nodes == numbers{0, 1, 2, 3});
  CHECK(cpus_of_worker(machine, numa_binding::node, 2, 4) ==
        numbers{8, 9, 10, 11, 24, 25, 26, 27});
  const numbers second_socket = cpus_of_worker(machine, numa_binding::socket, 2, 4);
  CHECK(second_socket.size() == 16);
  CHECK(second_socket == cpus_of_worker(machine, numa_binding::socket, 3, 4));
  CHECK(recorded.read(up_to(32), "3,GPU-a").gpu_nodes == numbers{3, 0});
  // As CUDA has it, what is not there ends the list.
  CHECK(recorded.read(up_to(32), "1,7,0").gpu_nodes == numbers{1});
}

TEST_CASE("exclusive: workers of one node share its cores, and no core is split") {
  recorded_machine recorded;
  describe_two_sockets(recorded);
  for (const char* const address : {"0000:01:00.0", "0000:02:00.0", "0000:03:00.0"})
    recorded.add_gpu(address, "GPU-x", 0);
  const cpu_topology machine = recorded.read(up_to(32));
  CHECK(cpus_of_worker(machine, numa_binding::exclusive, 0, 3) == numbers{0, 1, 16, 17});
  CHECK(cpus_of_worker(machine, numa_binding::exclusive, 1, 3) == numbers{2, 18});
  CHECK(cpus_of_worker(machine, numa_binding::exclusive, 2, 3) == numbers{3, 19});
  // A GPU without a worker keeps its share.
  CHECK(cpus_of_worker(machine, numa_binding::exclusive, 1, 2) == numbers{2, 18});
  CHECK_THROWS_WITH_AS((void)cpus_of_worker(machine, numa_binding::exclusive, 0, 15),
                       doctest::Contains("node 0 has 4 cores for 15 workers"),
                       std::invalid_argument);
}

TEST_CASE("core-complex: each worker gets a cache, the largest first, and again") {
  recorded_machine recorded;
  for (unsigned i = 0; i < 6; ++i)
    recorded.add_cpu(i, 0, std::to_string(i), i < 2 ? "0-1" : "2-5");
  recorded.add_node(0, "0-5");
  const cpu_topology machine = recorded.read(up_to(6));
  CHECK(cpus_of_worker(machine, numa_binding::core_complex, 0, 3) == numbers{2, 3, 4, 5});
  CHECK(cpus_of_worker(machine, numa_binding::core_complex, 1, 3) == numbers{0, 1});
  CHECK(cpus_of_worker(machine, numa_binding::core_complex, 2, 3) == numbers{2, 3, 4, 5});
}

TEST_CASE("without GPUs workers are spread over the nodes that may be used") {
  recorded_machine recorded;
  describe_two_sockets(recorded);
  const cpu_topology machine = recorded.read(up_to(32));
  const auto first_cpus = [&](int workers) {
    numbers firsts;
    for (int i = 0; i < workers; ++i)
      firsts.push_back(cpus_of_worker(machine, numa_binding::node, i, workers).front());
    return firsts;
  };
  CHECK(first_cpus(8) == numbers{0, 0, 4, 4, 8, 8, 12, 12});
  CHECK(first_cpus(2) == numbers{0, 8});
  // taskset left two CPUs of two nodes.
  const cpu_topology narrow = recorded.read({5, 9});
  CHECK(cpus_of_worker(narrow, numa_binding::node, 1, 2) == numbers{9});
  CHECK(cpus_of_worker(narrow, numa_binding::exclusive, 0, 2) == numbers{5});
}

TEST_CASE("a machine that says nothing of NUMA is one node") {
  recorded_machine recorded;
  const cpu_topology machine = recorded.read({0, 1, 2});
  CHECK(cpus_of_worker(machine, numa_binding::node, 1, 2) == numbers{0, 1, 2});
  CHECK(cpus_of_worker(machine, numa_binding::socket, 1, 2) == numbers{0, 1, 2});
  CHECK(cpus_of_worker(machine, numa_binding::exclusive, 1, 2) == numbers{2});
  CHECK_THROWS_AS((void)cpus_of_worker(recorded.read({}), numa_binding::node, 0, 1),
                  std::invalid_argument);
}

TEST_CASE("a GPU on a node that may not be used is named") {
  recorded_machine recorded;
  describe_two_sockets(recorded);
  recorded.add_gpu("0000:c1:00.0", "GPU-d", 3);
  CHECK_THROWS_WITH_AS(
      (void)cpus_of_worker(recorded.read({0, 1}), numa_binding::node, 0, 1),
      doctest::Contains("of node 3, where the GPU of local rank 0 is"),
      std::invalid_argument);
}

TEST_CASE("this machine has CPUs for two workers, by each kind but exclusive") {
  launch_options job{.program = "p", .workers = 2};
  CHECK(cpus_of_workers(job).empty());
  for (const numa_binding how :
       {numa_binding::node, numa_binding::socket, numa_binding::core_complex}) {
    job.binding = how;
    const auto all = cpus_of_workers(job);
    REQUIRE(all.size() == 2);
    CHECK(!all[0].empty());
    CHECK(!all[1].empty());
  }
}

TEST_SUITE_END();
