// Launch context: what each launcher says, what is missing of it, and what contradicts
// itself. Each variable that a launcher needs is taken away, emptied and spoilt.
#include "manyworlds/launch/launch_context.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace manyworlds::launch_tests {

TEST_SUITE_BEGIN("launch");

namespace {

const launch_variables torchruns{
    {"RANK", "3"},
    {"WORLD_SIZE", "4"},
    {"LOCAL_RANK", "1"},
    {"LOCAL_WORLD_SIZE", "2"},
    {"GROUP_RANK", "1"},
    {"GROUP_WORLD_SIZE", "2"},
    {"ROLE_NAME", "trainer"},
    {"ROLE_RANK", "2"},
    {"ROLE_WORLD_SIZE", "3"},
    {"MASTER_ADDR", "node1"},
    {"MASTER_PORT", "29500"},
    {"TORCHELASTIC_RUN_ID", "job17"},
    {"TORCHELASTIC_RESTART_COUNT", "2"},
    {"TORCHELASTIC_MAX_RESTARTS", "5"},
    {"TORCHELASTIC_USE_AGENT_STORE", "True"},
    {"TORCHELASTIC_ERROR_FILE", "/tmp/error.json"},
};
const launch_variables by_hand{
    {"RANK", "1"},
    {"WORLD_SIZE", "2"},
    {"MASTER_ADDR", "127.0.0.1"},
    {"MASTER_PORT", "29500"},
};
const launch_variables slurms{
    {"SLURM_PROCID", "2"},
    {"SLURM_NTASKS", "3"},
    {"SLURM_LOCALID", "0"},
    {"SLURM_NODEID", "1"},
    {"SLURM_STEP_NODELIST", "n[1-2]"},
    {"SLURM_STEP_TASKS_PER_NODE", "2,1"},
    {"SLURM_JOB_ID", "17"},
    {"SLURM_STEP_ID", "4"},
    {"SLURM_STEP_RESV_PORTS", "30001-30003"},
};
const launch_variables open_mpis{
    {"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "2"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
    {"PMIX_NAMESPACE", "1492320257"},    {"PMIX_RANK", "1"},
};
const launch_variables hydras{
    {"PMI_RANK", "1"},        {"PMI_SIZE", "2"},           {"MPI_LOCALRANKID", "1"},
    {"MPI_LOCALNRANKS", "2"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"},
};

launch_variables with(launch_variables all, const std::string& name,
                      const std::string& value) {
  all.insert_or_assign(name, value);
  return all;
}

launch_variables without(launch_variables all, const std::string& name) {
  all.erase(name);
  return all;
}

/// Returns the error of these variables. What is expected stands in it.
launch_error error_of(const launch_variables& variables) {
  try {
    const launch_context job = launch_context::from(variables);
    FAIL("these variables were taken: " << job.text());
  } catch (const launch_error& e) {
    CAPTURE(e.what());
    CHECK(std::string(e.what()).find(e.variable()) == 0);
    CHECK(std::string(e.what()).find(e.expected()) != std::string::npos);
    return e;
  }
  throw std::logic_error("not reached");
}

void check_refused(const launch_variables& variables, const std::string& name) {
  CAPTURE(name);
  const launch_error e = error_of(variables);
  CAPTURE(e.what());
  CHECK(e.variable() == name);
  const auto given = variables.find(name);
  CHECK(e.is_set() == (given != variables.end()));
  CHECK(e.value() == (given == variables.end() ? "" : given->second));
}

/// A file with these bytes, while it lives.
class written_file {
 public:
  written_file(const std::string& bytes, mode_t mode) {
    const int fd = ::mkstemp(name_.data());
    REQUIRE(fd >= 0);
    ::fchmod(fd, mode);
    REQUIRE(::write(fd, bytes.data(), bytes.size()) ==
            static_cast<ssize_t>(bytes.size()));
    ::close(fd);
  }
  written_file(const written_file&) = delete;
  written_file& operator=(const written_file&) = delete;
  ~written_file() { ::unlink(name_.c_str()); }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  std::string name_ = "/tmp/mw-secret-XXXXXX";
};

}  // namespace

TEST_CASE("C1 torchrun's variables give the place, the store and the run") {
  const launch_context job = launch_context::from(torchruns);
  CHECK(job.launcher == launcher_kind::torchrun);
  CHECK(job.rank == 3);
  CHECK(job.size == 4);
  CHECK(job.local_rank == 1);
  CHECK(job.local_size == 2);
  CHECK(job.node_rank == 1);
  CHECK(job.node_count == 2);
  CHECK(job.role == "trainer");
  CHECK(job.role_rank == 2);
  CHECK(job.role_size == 3);
  CHECK(job.run_id == "job17");
  CHECK(job.attempt == 2);
  CHECK_FALSE(job.is_attempt_agreed);
  CHECK(job.max_restarts == 5);
  CHECK(job.place == store_place::launcher);
  CHECK(job.store == "node1:29500");
  CHECK(job.error_file == "/tmp/error.json");
  CHECK(job.text() == "rank 3 of 4 (torchrun, run job17)");
  const world_options w = job.world("main");
  CHECK(w.name == "main");
  CHECK(w.rank == 3);
  CHECK(w.size == 4);
}

TEST_CASE("C1 the agent's store is there if the variable is True, as PyTorch reads it") {
  for (const char* other : {"False", "true", "1", "", "TRUE", "True "}) {
    CAPTURE(other);
    const auto job =
        launch_context::from(with(torchruns, "TORCHELASTIC_USE_AGENT_STORE", other));
    CHECK(job.place == store_place::rank_zero);
  }
  const auto job =
      launch_context::from(without(torchruns, "TORCHELASTIC_USE_AGENT_STORE"));
  CHECK(job.place == store_place::rank_zero);
}

TEST_CASE("C1 our own variables win over torchrun's") {
  launch_variables all = with(torchruns, "MANYWORLDS_RUN_ID", "ours");
  all = with(all, "MANYWORLDS_ATTEMPT", "7");
  all = with(all, "MANYWORLDS_INCARNATION", "3");
  all = with(all, "MANYWORLDS_STORE", "[::1]:4000");
  const launch_context job = launch_context::from(all);
  CHECK(job.launcher == launcher_kind::mwrun);
  CHECK(job.run_id == "ours");
  CHECK(job.attempt == 7);
  CHECK(job.is_attempt_agreed);
  CHECK(job.incarnation == 3);
  CHECK(job.place == store_place::launcher);
  CHECK(job.store == "[::1]:4000");
}

TEST_CASE("C1 four variables set by hand are enough") {
  const launch_context job = launch_context::from(by_hand);
  CHECK(job.launcher == launcher_kind::by_hand);
  CHECK(job.place == store_place::rank_zero);
  CHECK(job.store == "127.0.0.1:29500");
  // On loopback all are on this machine.
  CHECK(job.local_rank == 1);
  CHECK(job.local_size == 2);
  CHECK(job.is_local());
  CHECK(job.role_rank == 1);
  CHECK(job.run_id == "none");
  const auto apart = launch_context::from(with(by_hand, "MASTER_ADDR", "10.0.0.1"));
  CHECK(apart.local_size == 1);
  CHECK(apart.node_rank == 1);
  CHECK_FALSE(apart.is_local());
  const auto ipv6 = launch_context::from(with(by_hand, "MASTER_ADDR", "::1"));
  CHECK(ipv6.store == "[::1]:29500");
  CHECK(ipv6.is_local());
}

TEST_CASE("C1 without any launcher a process is alone") {
  for (const launch_variables& all :
       {launch_variables{}, launch_variables{{"MASTER_ADDR", "node1"}},
        // A batch script of Slurm is no process of a step.
        launch_variables{
            {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "3"}, {"SLURM_JOB_ID", "4"}}}) {
    const launch_context job = launch_context::from(all);
    CHECK(job.launcher == launcher_kind::none);
    CHECK(job.rank == 0);
    CHECK(job.size == 1);
    CHECK(job.place == store_place::own);
    CHECK(job.is_local());
  }
}

TEST_CASE("C1 Slurm's variables give the place and the first node's reserved port") {
  const launch_context job = launch_context::from(slurms);
  CHECK(job.launcher == launcher_kind::slurm);
  CHECK(job.rank == 2);
  CHECK(job.size == 3);
  CHECK(job.local_rank == 0);
  CHECK(job.local_size == 1);
  CHECK(job.node_rank == 1);
  CHECK(job.node_count == 2);
  CHECK(job.run_id == "slurm-17.4");
  CHECK(job.place == store_place::rank_zero);
  CHECK(job.store == "n1:30001");
}

TEST_CASE("C1 without reserved ports the numbers of job and step give one to all") {
  const auto all = without(slurms, "SLURM_STEP_RESV_PORTS");
  const launch_context job = launch_context::from(all);
  CHECK(job.store == "n1:23531");
  CHECK(launch_context::from(with(all, "SLURM_PROCID", "1")).store == job.store);
  CHECK(launch_context::from(with(all, "SLURM_STEP_ID", "5")).store != job.store);
}

TEST_CASE("C1 a step of one node has its store on loopback") {
  launch_variables all = with(slurms, "SLURM_STEP_NODELIST", "n2");
  all = with(all, "SLURM_NODEID", "0");
  all = with(all, "SLURM_STEP_TASKS_PER_NODE", "3");
  all = with(all, "SLURM_LOCALID", "2");
  const launch_context job = launch_context::from(all);
  CHECK(job.store == "127.0.0.1:30001");
  CHECK(job.is_local());
}

TEST_CASE("C1 a store that was named by hand is taken under Slurm too") {
  launch_variables all = with(slurms, "MASTER_ADDR", "n2");
  CHECK(error_of(all).variable() == "MASTER_PORT");
  all = with(all, "MASTER_PORT", "4000");
  CHECK(launch_context::from(all).store == "n2:4000");
}

TEST_CASE("C1 srun with PMIx lets rank 0 tell where the store is") {
  launch_variables all = with(slurms, "PMIX_NAMESPACE", "slurm.pmix.17.4");
  all = with(all, "PMIX_RANK", "2");
  CHECK(launch_context::from(all).store == "n1:30001");
  all = with(all, "pmix.job.size", "3");
  const launch_context job = launch_context::from(all);
  CHECK(job.launcher == launcher_kind::slurm);
  CHECK(job.place == store_place::published);
  CHECK(job.store == "n1:0");
  CHECK(error_of(with(all, "PMIX_RANK", "1")).variable() == "SLURM_PROCID");
}

TEST_CASE("C1 Open MPI's variables give the place, and PMIx the store") {
  const launch_context job = launch_context::from(open_mpis);
  CHECK(job.launcher == launcher_kind::open_mpi);
  CHECK(job.rank == 1);
  CHECK(job.size == 2);
  CHECK(job.local_rank == 1);
  CHECK(job.is_local());
  CHECK(job.place == store_place::published);
  CHECK(job.store == "127.0.0.1:0");
  CHECK(job.run_id == "1492320257");
  launch_variables given = with(open_mpis, "MASTER_ADDR", "127.0.0.1");
  given = with(given, "MASTER_PORT", "4000");
  CHECK(launch_context::from(given).place == store_place::rank_zero);
}

TEST_CASE("C1 another launcher's PMIx says all but the rank under its own keys") {
  launch_variables all{{"PMIX_NAMESPACE", "prte-1"}, {"PMIX_RANK", "5"}};
  CHECK(error_of(all).variable() == "pmix.job.size");
  check_refused(without(all, "PMIX_NAMESPACE"), "PMIX_NAMESPACE");
  all = with(all, "pmix.job.size", "8");
  all = with(all, "pmix.lrank", "1");
  all = with(all, "pmix.local.size", "4");
  all = with(all, "pmix.nodeid", "1");
  all = with(all, "pmix.num.nodes", "2");
  all = with(all, "pmix.hname", "node1");
  const launch_context job = launch_context::from(all);
  CHECK(job.launcher == launcher_kind::pmix);
  CHECK(job.rank == 5);
  CHECK(job.size == 8);
  CHECK(job.local_rank == 1);
  CHECK(job.node_count == 2);
  CHECK(job.place == store_place::published);
  CHECK(job.store == "node1:0");
}

TEST_CASE("C1 hydra's variables give the place; the store must be named") {
  const launch_context job = launch_context::from(hydras);
  CHECK(job.launcher == launcher_kind::hydra);
  CHECK(job.rank == 1);
  CHECK(job.local_size == 2);
  CHECK(job.place == store_place::rank_zero);
  launch_variables alone{{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}};
  CHECK(launch_context::from(alone).place == store_place::own);
  // Inside of Slurm hydra is the inner launcher.
  launch_variables inside = hydras;
  inside.insert(slurms.begin(), slurms.end());
  CHECK(launch_context::from(inside).launcher == launcher_kind::hydra);
  // srun --mpi=pmi2 says the same in its variables as in its own.
  launch_variables same = slurms;
  same = with(same, "PMI_RANK", "2");
  same = with(same, "PMI_SIZE", "3");
  CHECK(launch_context::from(same).launcher == launcher_kind::slurm);
}

TEST_CASE("C1 of launchers inside each other the inner one counts") {
  launch_variables agents = torchruns;
  agents.insert(slurms.begin(), slurms.end());
  agents.insert(open_mpis.begin(), open_mpis.end());
  CHECK(launch_context::from(agents).launcher == launcher_kind::torchrun);
  launch_variables daemons = open_mpis;
  daemons.insert(slurms.begin(), slurms.end());
  CHECK(launch_context::from(daemons).launcher == launcher_kind::open_mpi);
}

TEST_CASE("C1 a variable that is missing, empty, no number or too large is named") {
  const std::vector<std::pair<const launch_variables*, std::vector<std::string>>> needed{
      {&torchruns,
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK",
        "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR",
        "MASTER_PORT"}},
      {&by_hand, {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}},
      {&slurms,
       {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NODEID",
        "SLURM_STEP_NODELIST", "SLURM_JOB_ID"}},
      {&open_mpis,
       {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE"}},
      {&hydras,
       {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "MASTER_ADDR",
        "MASTER_PORT"}},
  };
  for (const auto& [all, names] : needed) {
    for (const std::string& name : names) {
      check_refused(without(*all, name), name);
      check_refused(with(*all, name, ""), name);
      const bool is_text = name == "MASTER_ADDR" || name == "SLURM_STEP_NODELIST" ||
                           name == "SLURM_JOB_ID";
      if (is_text) continue;
      for (const char* value : {"x", "-1", "1x", " 1", "+1", "1.0", "0x1", "4294967297",
                                "99999999999999999999999"})
        check_refused(with(*all, name, value), name);
    }
  }
}

TEST_CASE("C1 the values that contradict each other are named") {
  check_refused(with(by_hand, "RANK", "2"), "RANK");
  check_refused(with(by_hand, "WORLD_SIZE", "0"), "WORLD_SIZE");
  check_refused(with(torchruns, "LOCAL_RANK", "2"), "LOCAL_RANK");
  check_refused(with(torchruns, "LOCAL_WORLD_SIZE", "5"), "LOCAL_WORLD_SIZE");
  check_refused(with(torchruns, "GROUP_RANK", "2"), "GROUP_RANK");
  check_refused(with(torchruns, "ROLE_RANK", "3"), "ROLE_RANK");
  check_refused(with(slurms, "SLURM_PROCID", "3"), "SLURM_PROCID");
  check_refused(with(slurms, "SLURM_NODEID", "2"), "SLURM_NODEID");
  check_refused(with(slurms, "SLURM_LOCALID", "1"), "SLURM_LOCALID");
  check_refused(with(slurms, "SLURM_STEP_TASKS_PER_NODE", "2"),
                "SLURM_STEP_TASKS_PER_NODE");
  check_refused(with(slurms, "SLURM_STEP_TASKS_PER_NODE", "2,9"),
                "SLURM_STEP_TASKS_PER_NODE");
  check_refused(with(slurms, "SLURM_STEP_NODELIST", "n[1-"), "SLURM_STEP_NODELIST");
  check_refused(with(slurms, "SLURM_STEP_RESV_PORTS", "x"), "SLURM_STEP_RESV_PORTS");
  check_refused(with(open_mpis, "PMIX_RANK", "0"), "OMPI_COMM_WORLD_RANK");
  for (const char* port : {"0", "65536", "http"})
    check_refused(with(by_hand, "MASTER_PORT", port), "MASTER_PORT");
  for (const char* host : {"a b", "[::1]", "http://node1", "node1\n"})
    check_refused(with(by_hand, "MASTER_ADDR", host), "MASTER_ADDR");
  for (const char* at : {"", "node1", "node1:", ":1", "node1:0", "node1:99999"})
    check_refused(with(torchruns, "MANYWORLDS_STORE", at), "MANYWORLDS_STORE");
  check_refused(with(by_hand, "MANYWORLDS_INSECURE", "yes"), "MANYWORLDS_INSECURE");
  check_refused(with(by_hand, "MANYWORLDS_SECRET_FILE", ""), "MANYWORLDS_SECRET_FILE");
  check_refused(with(torchruns, "TORCHELASTIC_RUN_ID", ""), "TORCHELASTIC_RUN_ID");
  check_refused(with(torchruns, "TORCHELASTIC_RUN_ID", std::string(257, 'x')),
                "TORCHELASTIC_RUN_ID");
  check_refused(with(torchruns, "TORCHELASTIC_RESTART_COUNT", "-1"),
                "TORCHELASTIC_RESTART_COUNT");
}

TEST_CASE("C1 ranks given by hand must be those of the launcher around them") {
  const std::vector<std::pair<std::string, std::string>> others{
      {"OMPI_COMM_WORLD_RANK", "RANK"},
      {"OMPI_COMM_WORLD_SIZE", "WORLD_SIZE"},
      {"PMI_RANK", "RANK"},
      {"PMI_SIZE", "WORLD_SIZE"},
      {"PMIX_RANK", "RANK"},
      {"SLURM_PROCID", "RANK"},
  };
  for (const auto& other : others) {
    const std::string& theirs = other.first;
    const std::string& ours = other.second;
    CAPTURE(theirs);
    CHECK(launch_context::from(with(by_hand, theirs, by_hand.at(ours))).rank == 1);
    const launch_error e = error_of(with(by_hand, theirs, "5"));
    CHECK(e.variable() == ours);
    CHECK(e.expected().find(theirs) != std::string::npos);
  }
}

TEST_CASE("C1 a value with control characters or of great length stays one short line") {
  const launch_error e =
      error_of(with(by_hand, "RANK", "1\n\x1b[31m" + std::string(100'000, 'x')));
  const std::string text = e.what();
  CHECK(text.find('\n') == std::string::npos);
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.size() < 400);
}

TEST_CASE("the local rank picks among the visible devices") {
  const auto device = [](const char* visible, rank_t local) {
    launch_context job;
    job.local_rank = local;
    job.local_size = local + 1;
    job.visible_devices =
        launch_context::from({{"CUDA_VISIBLE_DEVICES", visible}}).visible_devices;
    return job.device();
  };
  CHECK(launch_context::from(torchruns).device() == 1);
  CHECK(device("4,6", 0) == 0);
  CHECK(device("4,6", 1) == 1);
  CHECK(device("4,6", 2) == 0);
  // A launcher that shows each process its own device.
  CHECK(device("6", 3) == 0);
  CHECK(device("GPU-8932f937,MIG-1", 1) == 1);
  CHECK(device("", 0) == -1);
  CHECK(device("-1", 0) == -1);
  CHECK(device("3,-1,4", 1) == 0);
  CHECK(device("NoDevFiles", 0) == -1);
}

TEST_CASE("a runtime of a job on one machine listens on loopback and needs no secret") {
  const runtime_options here = launch_context::from(by_hand).runtime();
  CHECK(here.listen == "127.0.0.1:0");
  CHECK(here.secret.empty());
  CHECK(launch_context::from({}).runtime().listen == "127.0.0.1:0");
}

TEST_CASE("a runtime beyond loopback takes the address that leads to the store") {
  launch_variables all = with(by_hand, "MASTER_ADDR", "192.0.2.77");
  all = with(all, "MANYWORLDS_INTERFACE", "192.0.2.9");
  const launch_context open = launch_context::from(all);
  CHECK_THROWS_WITH_AS(
      (void)open.runtime(),
      doctest::Contains(
          "MANYWORLDS_SECRET_FILE is not set: expected a file with the job's "
          "secret, since this process is reached at 192.0.2.9:0"),
      launch_error);
  const auto trusted = launch_context::from(with(all, "MANYWORLDS_INSECURE", "1"));
  CHECK(trusted.runtime().listen == "192.0.2.9:0");
  CHECK(trusted.runtime().insecure);
  const written_file file("a secret\n", 0600);
  const auto guarded =
      launch_context::from(with(all, "MANYWORLDS_SECRET_FILE", file.name()));
  CHECK(guarded.runtime().secret == "a secret");
  const auto by_name = launch_context::from(
      with(with(all, "MANYWORLDS_INTERFACE", "lo"), "MANYWORLDS_INSECURE", "1"));
  CHECK(by_name.runtime().listen == "127.0.0.1:0");
  const auto unknown =
      launch_context::from(with(all, "MANYWORLDS_INTERFACE", "no-such-interface"));
  CHECK_THROWS_WITH_AS((void)unknown.runtime(),
                       doctest::Contains("MANYWORLDS_INTERFACE=\"no-such-interface\""),
                       launch_error);
}

TEST_CASE(
    "a secret file that others may use, or that has no secret, is refused by name") {
  const auto why_not = [](const std::string& path) -> std::string {
    launch_context job;
    job.secret_file = path;
    try {
      return "taken: " + job.secret().str();
    } catch (const launch_error& e) {
      CHECK(e.variable() == "MANYWORLDS_SECRET_FILE");
      CHECK(e.value() == path);
      return e.what();
    }
  };
  const auto has = [](const std::string& text, const char* part) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  has(why_not(written_file("secret", 0640).name()), "others than its owner");
  has(why_not(written_file("secret", 0604).name()), "mode 0604");
  has(why_not(written_file("", 0600).name()), "it is empty");
  has(why_not(written_file("\n", 0600).name()), "it is empty");
  has(why_not(written_file(std::string(128, 'x'), 0600).name()), "at most 127 bytes");
  has(why_not(written_file(std::string(100'000, 'x'), 0600).name()), "at most 127 bytes");
  has(why_not("/no/such/file"), "/no/such/file");
  has(why_not("/tmp"), "no regular file");
  has(why_not("/dev/null"), "no regular file");
  CHECK(why_not(written_file("secret\r\n", 0600).name()) == "taken: secret");
  CHECK(why_not(written_file(std::string(127, 'x'), 0400).name()) ==
        "taken: " + std::string(127, 'x'));
}

TEST_SUITE_END();

}  // namespace manyworlds::launch_tests
