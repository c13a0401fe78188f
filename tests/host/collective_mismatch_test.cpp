// Members that do not do the same, and arguments that are wrong.
#include "collective_fixture.hpp"

using namespace manyworlds;
using namespace manyworlds::host_tests;
using namespace std::chrono_literals;

namespace {

/// A collective of rank 0 and another of rank 1, in a world of two.
struct pair_of {
  template <class First, class Second>
  pair_of(First&& first, Second&& second) : c(2, ground::simulated) {
    first(a);
    second(b);
    c.at(0).start(a);
    c.at(1).start(b);
    c.sim().run_for(3s);
  }
  [[nodiscard]] bool any_broke() {
    return c[0].events.cause == cause::mismatch || c[1].events.cause == cause::mismatch;
  }
  [[nodiscard]] std::string text() {
    return c[0].events.reason.empty() ? c[1].events.reason : c[0].events.reason;
  }

  cluster c;
  std::vector<float> x = std::vector<float>(64, 1);
  std::vector<float> y = std::vector<float>(64, 2);
  collective_op a{operation_kind::none};
  collective_op b{operation_kind::none};
};

struct entered {
  operation_kind kind = operation_kind::all_reduce;
  const_buffer_view in;
  buffer_view out;
  reduction by = sum;
  rank_t root = 0;

  void operator()(collective_op& op) const {
    op.kind = kind;
    op.in = in;
    op.out = out;
    op.source = const_view_list(std::span(&op.in, 1));
    op.target = view_list(std::span(&op.out, 1));
    op.part.by = by;
    op.part.root = root;
  }
};

}  // namespace

TEST_SUITE("host collectives: disagreement") {
  TEST_CASE(
      "members that disagree break by a mismatch that names both and what differs") {
    std::vector<float> x(64, 1);
    std::vector<float> y(64, 2);
    std::vector<std::int32_t> n(64, 2);
    const std::span<float> half(y.data(), 32);
    using enum operation_kind;
    struct row {
      const char* what;
      entered first;
      entered second;
      const char* says;
    };
    const std::vector<row> rows{
        {"count", {all_reduce, x, x}, {all_reduce, half, half}, "with other counts"},
        {"type", {all_reduce, x, x}, {all_reduce, n, n}, "int32"},
        {"reduction", {all_reduce, x, x, sum}, {all_reduce, y, y, max}, "max"},
        {"root", {reduce, x, x, sum, 0}, {reduce, y, y, sum, 1}, "root 1"},
        {"kind", {all_reduce, x, x}, {all_to_all, y, y}, "all_"},
        {"kind, each waiting for the other",
         {gather, std::span<const float>(x.data(), 32), y, sum, 0},
         {broadcast, x, x, sum, 0},
         "gather 1"},
        {"kind, one against a barrier",
         {barrier, {}, {}},
         {all_reduce, y, y},
         "barrier 1"},
    };
    for (const row& r : rows) {
      CAPTURE(r.what);
      pair_of p(r.first, r.second);
      CHECK(p.any_broke());
      CHECK_MESSAGE(p.text().find(r.says) != std::string::npos, p.text());
      CHECK_MESSAGE(p.text().find("rank 0") != std::string::npos, p.text());
      CHECK_MESSAGE(p.text().find("rank 1") != std::string::npos, p.text());
    }
  }

  TEST_CASE("what is wrong with the arguments alone is told, and the world stays up") {
    std::vector<float> x(64, 1);
    std::vector<float> y(63, 2);
    std::vector<double> d(64, 2);
    const std::span<float> shifted(x.data() + 1, 63);
    const std::span<float> start(x.data(), 63);
    using enum operation_kind;
    struct row {
      entered wrong;
      const char* says;
    };
    const std::vector<row> rows{
        {{broadcast, x, x, sum, 2}, "root 2 in a world of 2 members"},
        {{broadcast, x, x, sum, -1}, "root -1"},
        {{all_reduce, x, y}, "out has 63 elements, but 64 are needed"},
        {{all_reduce, x, d}, "float32, but out of float64"},
        {{all_reduce, start, shifted}, "overlap"},
        {{all_to_all, y, shifted}, "63 elements cannot be divided among 2"},
        {{all_gather, x, d}, "float32, but out of float64"},
        {{reduce_scatter, y, x}, "in has 63 elements"},
        {{all_to_all, x, x}, "overlap"},
        {{all_reduce, x, x, static_cast<reduction>(9)}, "there is no reduction 9"},
    };
    for (const row& r : rows) {
      CAPTURE(r.says);
      // Both make the same mistake: nothing is started, and what follows goes on.
      pair_of p(r.wrong, r.wrong);
      CHECK(p.a.failed(cause::invalid_argument));
      CHECK_MESSAGE(p.a.failure_detail.find(r.says) != std::string::npos,
                    p.a.failure_detail);
      CHECK(p.b.failed(cause::invalid_argument));
      CHECK(p.text() == "");
      collective_run all(all_reduce, 2, 10, sum, 0, true, false);
      all.start(p.c);
      REQUIRE(p.c.until([&] { return all.ended(); }));
      all.check();
    }
  }

  TEST_CASE("counts with equal low bits are told apart before anything is reduced") {
    std::vector<float> few(std::size_t{1} << 20, 1);
    std::vector<float> many(std::size_t{1} << 21, 1);
    const entered first{operation_kind::reduce, few, few, sum, 0};
    const entered second{operation_kind::reduce, many, many, sum, 0};
    pair_of p(first, second);
    CHECK(p.any_broke());
    CHECK_FALSE(p.a.done());
  }

  TEST_CASE(
      "members that give parts of other sizes break, also where the sum is the same") {
    cluster c(2, ground::simulated);
    const std::vector<std::size_t> ours{1, 3};
    const std::vector<std::size_t> theirs{3, 1};
    std::vector<std::int32_t> in(4, 1);
    std::vector<std::int32_t> out(3);
    const std::span<std::int32_t> one(out.data(), 1);
    collective_op a(operation_kind::reduce_scatter, in, one);
    collective_op b(operation_kind::reduce_scatter, in, one);
    for (collective_op* op : {&a, &b}) {
      op->part.is_variable = true;
      op->part.source_counts = op == &a ? ours : theirs;
    }
    c.at(0).start(a);
    c.at(1).start(b);
    c.sim().run_for(3s);
    CHECK((c[0].events.cause == cause::mismatch || c[1].events.cause == cause::mismatch));
    CHECK_FALSE((a.done() || b.done()));
  }

  TEST_CASE("counts that lie about a buffer are refused before anything is copied") {
    cluster c(1, ground::simulated);
    std::vector<std::int32_t> five(5, 1);
    std::vector<std::int32_t> three(3, -1);
    const std::vector<std::size_t> in_counts{5};
    const std::vector<std::size_t> out_counts{3};
    collective_op op(operation_kind::all_to_all, five, three);
    op.part.is_variable = true;
    op.part.source_counts = in_counts;
    op.part.target_counts = out_counts;
    c.at(0).start(op);
    CHECK(op.failed(cause::invalid_argument));
    CHECK(op.failure_detail ==
          "this rank sends itself 5 elements, but expects 3 from itself");

    cluster d(2, ground::simulated);
    const std::vector<std::size_t> wrapping{10, std::size_t{0} - 6};
    std::vector<std::int32_t> four(4, 1);
    std::vector<std::int32_t> ten(10);
    collective_op wraps(operation_kind::reduce_scatter, four, ten);
    wraps.part.is_variable = true;
    wraps.part.source_counts = wrapping;
    d.at(0).start(wraps);
    CHECK(wraps.failed(cause::invalid_argument));
    CHECK(wraps.failure_detail == "a count of 10 exceeds the buffer of 4 elements");
  }

  TEST_CASE("a disagreement with a member that has left ends the collective alone") {
    cluster c(2, ground::simulated);
    std::vector<float> ten(10, 1);
    std::vector<float> twenty(20, 2);
    collective_op gives(operation_kind::broadcast, ten, ten);
    gives.part.root = 0;
    c.at(0).start(gives);
    CHECK(gives.done());
    c.at(0).leave(c[0].gone, c[0].home->now() + 5s);
    c.settle();
    collective_op takes(operation_kind::broadcast, twenty, twenty);
    takes.part.root = 0;
    c.at(1).start(takes);
    REQUIRE(c.until([&] { return takes.ended(); }));
    CHECK_FALSE(takes.done());
    collective_op again(operation_kind::broadcast, twenty, twenty);
    again.part.root = 0;
    c.at(1).start(again);
    REQUIRE(c.until([&] { return again.ended(); }));
    CHECK(again.failed(cause::closed));
    CHECK(c[1].events.quiet());
  }

  TEST_CASE("one member's wrong arguments break the world of who entered rightly") {
    std::vector<float> x(64, 1);
    std::vector<float> y(63, 2);
    for (const bool wrong_first : {true, false}) {
      cluster c(3, ground::simulated);
      collective_op wrong(operation_kind::all_reduce, x, y);
      std::vector<float> a(64), b(64);
      collective_op second(operation_kind::all_reduce, a, a);
      collective_op third(operation_kind::all_reduce, b, b);
      if (wrong_first) c.at(0).start(wrong);
      c.settle();
      c.at(1).start(second);
      c.at(2).start(third);
      c.settle();
      if (!wrong_first) c.at(0).start(wrong);
      c.settle();
      CHECK(wrong.failed(cause::invalid_argument));
      CHECK(c[0].events.quiet());
      for (rank_t r : {1, 2}) {
        CHECK(c[r].events.cause == cause::mismatch);
        CHECK_MESSAGE(c[r].events.reason.starts_with("rank " + std::to_string(r) +
                                                     " entered all_reduce 1 at "),
                      c[r].events.reason);
        CHECK_MESSAGE(
            c[r].events.reason.find(", rank 0 could not enter all_reduce 1 at ") !=
                std::string::npos,
            c[r].events.reason);
      }
    }
  }
}
