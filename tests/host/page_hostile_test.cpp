// What a member can do to the others by its page: it alone can write it, so it may write
// anything, at any time.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <string>
#include <thread>

#include "link/member_page.hpp"
#include "page_fixture.hpp"
#include "support/refused_calls.hpp"

using namespace manyworlds;
using namespace manyworlds::host_tests;
using namespace std::chrono_literals;

namespace {

/// The page of a member of this process, where that member writes it.
std::byte* page_of(rank_t rank, std::uint64_t world_id) {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    if (line.find("manyworlds-page") == std::string::npos) continue;
    if (line.find(" rw-s ") == std::string::npos) continue;
    std::uintptr_t begin = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR, &begin) != 1) continue;
    auto* const base = reinterpret_cast<std::byte*>(begin);
    shm::page_header header;
    std::memcpy(&header, base, sizeof header);
    if (header.world_id == world_id && header.rank == static_cast<std::uint32_t>(rank)) {
      return base;
    }
  }
  return nullptr;
}

/// Member 0 follows the protocol; member 1 enters nothing more, and its page is ours to
/// write.
struct lying_member {
  explicit lying_member(rank_t size = 2, ground g = ground::shared_simulated)
      : p(size, g, with_cpus(size)) {
    std::byte* const page = page_of(1, on_one_host().world_id);
    REQUIRE(page);
    words = reinterpret_cast<shm::page_words*>(page + shm::page_layout::words_begin);
    for (const auto& e : words->entries) last = std::max(last, e.number.load());
    REQUIRE(last > 0);
  }
  /// What member 1 would have to say about the next collective, which it has not entered.
  void say(std::uint64_t number, std::uint64_t signature, std::uint64_t bytes) {
    auto& e = words->entry(last + 1);
    e.signature.store(signature);
    e.bytes.store(bytes);
    e.number.store(number);
  }
  /// What an honest member has said about it.
  [[nodiscard]] std::uint64_t right_signature(rank_t rank = 0) const {
    const std::byte* const page = page_of(rank, on_one_host().world_id);
    REQUIRE(page);
    const auto* const theirs =
        reinterpret_cast<const shm::page_words*>(page + shm::page_layout::words_begin);
    return theirs->entry(last + 1).signature.load();
  }
  void expect_broken(enum cause why, const char* says) {
    p.c.sim().run_for(2s);
    CHECK(p.c[0].events.cause == why);
    CHECK(p.c[0].events.broken_by == std::vector<rank_t>{1});
    CHECK_MESSAGE(p.c[0].events.reason.find(says) != std::string::npos,
                  p.c[0].events.reason);
  }

  paged p;
  shm::page_words* words = nullptr;
  std::uint64_t last = 0;
};

}  // namespace

TEST_SUITE("host hostile: pages") {
  TEST_CASE("another signature breaks the world, naming both") {
    lying_member m;
    barrier_op op;
    m.p.c.at(0).start(op);
    m.say(m.last + 1, m.right_signature() ^ (std::uint64_t{1} << 16), 0);
    m.expect_broken(cause::mismatch, "rank 1");
    CHECK_FALSE(op.ended());
  }

  TEST_CASE("a number beyond what can be is a protocol error of that rank") {
    for (const std::uint64_t beyond :
         {std::uint64_t{shm::page_entries}, std::uint64_t{1} << 60}) {
      lying_member m;
      barrier_op op;
      m.p.c.at(0).start(op);
      m.say(m.last + 1 + beyond, m.right_signature(), 0);
      m.expect_broken(cause::protocol_error, "rank 1 has overwritten");
      CHECK_FALSE(op.ended());
    }
  }

  TEST_CASE("an older number is nothing, and the member is absent") {
    lying_member m;
    barrier_op op;
    m.p.c.at(0).start(op);
    m.say(1, m.right_signature(), 0);
    m.p.c.sim().run_for(2s);
    CHECK(m.p.c[0].events.quiet());
    CHECK_FALSE(op.ended());
  }

  TEST_CASE("an entry that was seen cannot be taken back") {
    lying_member m(4);
    const std::uint64_t before = m.words->entry(m.last + 1).number.load();
    std::vector<std::int32_t> in(10, 1);
    std::vector<std::int32_t> out(10, -1);
    std::vector<std::int32_t> others(20, -1);
    const std::span<std::int32_t> of_others(others);
    collective_op op(operation_kind::all_reduce, in, out);
    collective_op op_of_0(operation_kind::all_reduce, in, of_others.first(10));
    collective_op op_of_3(operation_kind::all_reduce, in, of_others.last(10));
    m.p.c.at(3).start(op_of_3);
    m.say(m.last + 1, m.right_signature(3), 40);
    // Member 2 sees it, and waits for member 0 first.
    m.p.c.at(2).start(op);
    m.words->entry(m.last + 1).number.store(before);
    m.p.c.at(0).start(op_of_0);
    m.p.c.sim().run_for(2s);
    const auto& seen = m.p.c[2].events;
    CHECK(seen.cause == cause::protocol_error);
    CHECK(seen.broken_by == std::vector<rank_t>{1});
    CHECK(seen.reason == "rank 1 has taken back what it entered in its page");
    CHECK_FALSE(op.ended());
    CHECK(std::all_of(out.begin(), out.end(), [](std::int32_t v) { return v == -1; }));
  }

  TEST_CASE("a barrier that was entered has been entered, whatever stands there later") {
    lying_member m(3);
    const std::uint64_t signature = m.words->entry(m.last).signature.load() + 1;
    m.say(m.last + 1, signature, 0);
    std::deque<barrier_op> ops(2);
    m.p.c.at(2).start(ops[0]);
    REQUIRE_FALSE(ops[0].ended());
    m.say(m.last + 1, ~signature, 8);
    m.p.c.at(0).start(ops[1]);
    m.p.c.sim().run_for(2s);
    CHECK(ops[0].ended());
    CHECK(m.p.c[2].events.quiet());
    // Member 0 has seen the lie, and not what stood there before.
    CHECK(m.p.c[0].events.cause == cause::mismatch);
    CHECK_FALSE(ops[1].ended());
  }

  TEST_CASE("a payload of another size is refused, whatever would fit a round") {
    struct row {
      std::size_t count;
      std::uint64_t bytes;
    };
    const std::vector<row> rows{
        {10, 8}, {10, 41}, {10, std::uint64_t{1} << 40}, {200, 0}, {100'000, 400'004}};
    for (const row& r : rows) {
      CAPTURE(r.count);
      CAPTURE(r.bytes);
      lying_member m;
      std::vector<std::int32_t> in(r.count, 1);
      std::vector<std::int32_t> out(r.count, -1);
      collective_op op(operation_kind::all_reduce, in, out);
      m.p.c.at(0).start(op);
      m.say(m.last + 1, m.right_signature(), r.bytes);
      const std::string says = "a message of " + std::to_string(r.bytes) +
                               " bytes where " + std::to_string(4 * r.count) +
                               " were expected";
      m.expect_broken(cause::mismatch, says.c_str());
      CHECK_FALSE(op.ended());
      CHECK(std::all_of(out.begin(), out.end(), [](std::int32_t v) { return v == -1; }));
    }
  }

  TEST_CASE("what changes after it was read does no harm") {
    lying_member m(2, ground::asking);
    std::atomic<bool> over{false};
    std::vector<std::int32_t> in(200, 1);
    std::vector<std::int32_t> out(202, 77);
    const std::span<std::int32_t> inner(out.data() + 1, 200);
    collective_op op(operation_kind::all_reduce, in, inner);
    m.p.c.at(0).start(op);
    const std::uint64_t signature = m.right_signature();
    std::thread liar([&] {
      while (!over.load()) {
        for (const std::uint64_t e :
             {std::uint64_t{800}, std::uint64_t{0}, ~std::uint64_t{0}}) {
          m.say(m.last + 1, signature, e);
          m.say(0, 0, 0);
        }
      }
    });
    const bool is_over =
        m.p.c.until([&] { return op.ended() || !m.p.c[0].events.quiet(); });
    over = true;
    liar.join();
    CHECK(is_over);
    CHECK(out.front() == 77);
    CHECK(out.back() == 77);
  }

  TEST_CASE("what it says of its sleep costs at most needless bytes") {
    lying_member m(3);
    m.words->waits.store(~std::uint64_t{0});
    // All but the liar go on as long as its entries come.
    barriers(m.p.c, 3, 20);
    m.words->waits.store(shm::page_wait::for_all(m.last + 30));
    barriers(m.p.c, 3, 20);
    CHECK(m.p.c[0].events.quiet());
    CHECK(m.p.c[2].events.quiet());
  }

  TEST_CASE("no member can write to another's page") {
    paged p(2);
    std::ifstream maps("/proc/self/maps");
    std::string line;
    int read_only = 0;
    while (std::getline(maps, line)) {
      if (line.find("manyworlds-page") == std::string::npos) continue;
      std::uintptr_t begin = 0;
      REQUIRE(std::sscanf(line.c_str(), "%" SCNxPTR, &begin) == 1);
      if (line.find(" r--s ") == std::string::npos) continue;
      ++read_only;
      CHECK(::mprotect(reinterpret_cast<void*>(begin), 4096, PROT_READ | PROT_WRITE) !=
            0);
    }
    CHECK(read_only == 2);
  }

  TEST_CASE("words about pages out of place end the connection") {
    struct row {
      std::uint32_t generation;
      std::uint64_t id;
      const char* says;
    };
    for (const row& r :
         {row{host::page_passed, 1, "a page where none can be passed"},
          row{host::page_ready, 9, "an answer about pages that were not passed"},
          row{host::page_ready, std::uint64_t{1} << 60, "an impossible number"}}) {
      cluster c(2, ground::epoll, {}, 1, false);
      member& m = c[0];
      m.backend = std::make_unique<host_backend>(*m.home, m.events, on_one_host(), 0,
                                                 std::move(c.streams(0)));
      host::frame f;
      f.kind = host::frame_kind::page;
      f.generation = r.generation;
      f.id = r.id;
      const auto header = encode(f);
      waited_request sent;
      iovec entry{const_cast<std::byte*>(header.data()), header.size()};
      sent.kind = io_kind::send;
      sent.socket = c.streams(1)[0].handle();
      sent.buffers = &entry;
      sent.buffer_count = 1;
      c[1].home->io().submit(sent);
      REQUIRE(c.until([&] { return sent.ended_ && !m.events.broken_by.empty(); }));
      CHECK(m.events.cause == cause::protocol_error);
      CHECK_MESSAGE(m.events.reason.find(r.says) != std::string::npos, m.events.reason);
    }
  }
}

TEST_SUITE("host collectives: pages") {
  TEST_CASE("where one member gets no page all go by messages, and it says so once") {
    cluster c(3, ground::shared_simulated, on_one_host());
    barriers(c, 3, 3);
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    rlimit small = before;
    small.rlim_cur = 4096;
    std::deque<barrier_op> ops(3);
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    c.at(1).start(ops[1]);
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
    c.at(0).start(ops[0]);
    c.at(2).start(ops[2]);
    REQUIRE(c.until([&] { return ops[0].done() && ops[1].done() && ops[2].done(); }));
    const std::uint64_t sent = messages_of(c, 3);
    barriers(c, 3, 40);
    CHECK(messages_of(c, 3) > sent);
    REQUIRE(c[1].events.warnings.size() == 1);
    CHECK_MESSAGE(c[1].events.warnings[0].find("file sizes") != std::string::npos,
                  c[1].events.warnings[0]);
    CHECK(c[0].events.warnings.empty());
    CHECK(c[2].events.warnings.empty());
  }

  TEST_CASE("where only a page cannot be sealed, all goes by messages, said once") {
    // F_SEAL_FUTURE_WRITE is of Linux 5.1; the other seals are older.
    testing::call_filter old_kernel;
    old_kernel.refuse_with_bits(SYS_fcntl, 2, F_SEAL_FUTURE_WRITE, EINVAL);
    testing::where_refused(old_kernel, [] {
      cluster c(2, ground::shared_simulated, on_one_host());
      barriers(c, 2, 40);
      const std::uint64_t sent = messages_of(c, 2);
      barriers(c, 2, 10);
      CHECK(messages_of(c, 2) == sent + 20);
      for (rank_t r = 0; r < 2; ++r) {
        REQUIRE(c[r].events.warnings.size() == 1);
        CHECK_MESSAGE(c[r].events.warnings[0].find("sealing a page") != std::string::npos,
                      c[r].events.warnings[0]);
      }
    });
  }

  TEST_CASE("a runtime's own rules come before pages") {
    const algorithm_rule rule{operation_kind::barrier, placement::anywhere, 1000,
                              std::size_t(-1), algorithm::logarithmic};
    host_backend_options o = on_one_host();
    o.algorithms = std::span(&rule, 1);
    cluster c(2, ground::shared_simulated, o);
    barriers(c, 2, 40);
    const std::uint64_t sent = messages_of(c, 2);
    barriers(c, 2, 10);
    CHECK(messages_of(c, 2) == sent + 20);
  }
}
