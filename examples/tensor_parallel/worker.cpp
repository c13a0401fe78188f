#include "worker.hpp"

#include <signal.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <utility>

#include "decoder.hpp"

namespace {

std::atomic<bool> shall_throw = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

/// A bug of a worker's own, at a moment that others choose.
void throw_if_told() {
  if (shall_throw.exchange(false)) throw std::runtime_error("SIGUSR1 told it to throw");
}

mw::task<part> load_part(mw::worker& me, model_config of, std::string path, int stages) {
  const int size = me.size() / stages;
  const part_place at{me.rank() / size, stages, me.rank() % size, size};
  co_return co_await read_part(of, std::move(path), at, &me);
}

mw::task<mw::tensor> run_first(mw::worker& me, const part& p, kv_cache& cache,
                               std::vector<int> tokens, int at) {
  throw_if_told();
  mw::tensor x = co_await embed(p, std::move(tokens));
  co_return co_await run_part(p, cache, std::move(x), at, &me);
}

mw::task<mw::tensor> run_next(mw::worker& me, const part& p, kv_cache& cache,
                              const mw::tensor& given, int at) {
  throw_if_told();
  mw::tensor x = co_await mw::worker::host_copy_of(given);
  co_return co_await run_part(p, cache, std::move(x), at, &me);
}

mw::task<mw::tensor> hand_over(mw::worker& me, const mw::tensor& x, mw::shape of) {
  const int half = me.size() / 2;
  mw::tensor taken;
  if (me.rank() < half) {
    const mw::tensor given = co_await me.copy_of(x);
    co_await me.world().send(given, mw::to{me.rank() + half});
  } else {
    taken = me.new_tensor(of, mw::dtype::float32);
    co_await me.world().recv(taken, mw::from{me.rank() - half});
  }
  co_return taken;
}

const mw::function_table functions{{load, load_part},
                                   {make_cache, empty_cache},
                                   {first_stage, run_first},
                                   {next_stage, run_next},
                                   {hand_on, hand_over}};

}  // namespace

bool is_worker() { return std::getenv("MANYWORLDS_SESSION") != nullptr; }

int run_worker(int count, const char* const* words) {
  std::signal(SIGUSR1, [](int) { shall_throw = true; });
  return mw::worker_main(functions, count, words);
}
