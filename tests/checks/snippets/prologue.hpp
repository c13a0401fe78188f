// What the snippets in the comments of public headers refer to and do not define. They
// are compiled, not run.
#pragma once

#if __has_include(<asio.hpp>)
#include <asio/awaitable.hpp>
#include <asio/use_awaitable.hpp>
#include <manyworlds/interop/asio.hpp>
#endif

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <manyworlds/gpu.hpp>
#include <manyworlds/interop/reply_feed.hpp>
#include <manyworlds/interop/resume_on.hpp>
#include <manyworlds/launch.hpp>
#include <manyworlds/mpmd.hpp>
#include <manyworlds/mw.hpp>
#include <manyworlds/spmd.hpp>
#include <manyworlds/testing.hpp>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

namespace snippets {

using namespace manyworlds;  // NOLINT(google-build-using-namespace)
using namespace std::chrono_literals;

// The library's objects.
extern mw::runtime rt;
extern mw::store& st;
extern mw::store& store;
extern mw::etcd_store& etcd;
extern mw::etcd_lease lease;
extern mw::world w;
extern mw::world_manager worlds;
extern mw::dispatcher workers;
extern mw::call_server server;
extern mw::role_context self;
extern mw::role_methods answers;
extern mw::scope& s;
extern mw::channel<std::string> queue;
extern mw::executor& home;
extern mw::simulation sim;
extern mw::process_options how;
extern mw::supervised_process engine;
extern mw::device_pool pool;
extern mw::pinned_pool pinned;
extern mw::owned_stream stream;
extern mw::device_buffer<float> on_device;
extern const mw::dlpack::managed_tensor_versioned& tensor;

// A coroutine of another library.
struct foreign_task {
  struct promise_type {
    foreign_task get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() {}
  };
};

// The application's.
struct small_head {
  int layer;
  int blocks;
};
struct tokenizer {
  mw::task<std::vector<std::string>> generate(std::span<const std::byte> prompt);
};
struct captured_graph {
  void capture(ncclComm* communicator, CUstream_st* stream);
  void launch();
  void destroy() noexcept;
};
struct layer {
  mw::tensor slice(const mw::tensor& of, mw::rank_t part, mw::rank_t parts) const;
};
inline constexpr mw::remote_function<layer(std::string, int)> fetch{"fetch", mw::alone};
inline constexpr mw::remote_function<mw::tensor(const layer&, const mw::tensor&)> mlp{
    "mlp"};
inline constexpr mw::remote_function<std::vector<int>(const mw::tensor&)> pick{"pick"};
inline constexpr mw::remote_function<void(int)> step{"step"};
inline constexpr mw::remote_function<float(const mw::tensor&)> loss{"loss"};
extern const mw::function_table functions;
extern mw::session tp;
extern mw::dref<layer> weights;
extern mw::dref<mw::tensor> input, output;
layer run_fetch(std::string path, int part);
mw::task<mw::tensor> run_mlp(mw::worker& me, const layer& w, const mw::tensor& x);
std::vector<int> run_pick(const mw::tensor& y);
void run_step(int number);
extern small_head head;
extern tokenizer eng;
extern captured_graph graph;
extern std::vector<float> x, y;
extern float* p;
extern const std::string request, path, secret, text, id;
extern std::vector<std::byte> prompt;
extern const std::span<const std::byte> values;
extern const std::uint64_t file_bytes;
extern const mw::stored_tensor stored;
extern std::stop_token token;
extern std::atomic<int> errors;
extern const std::uint64_t seed;
extern const std::int64_t members;

void start_workers(int first_rank, int size);
void stop_workers();
std::unique_ptr<mw::job_sink> make_my_sink(const std::string& argument);
std::unique_ptr<mw::rendezvous_backend> make_my_backend(mw::runtime& rt,
                                                        const std::string& endpoint);
mw::task<void> first();
mw::task<void> second();
mw::task<void> load();
mw::task<void> edge(mw::world& w);
mw::task<float> ask(mw::world& w);
mw::task<void> ask(mw::runtime& rt, mw::store& store);
mw::task<void> serve(mw::runtime& rt);
mw::task<void> serve(mw::runtime& rt, mw::store& store);
std::vector<std::byte> read_file(const std::string& path);
std::vector<std::string> tokens_of(std::span<const std::byte> prompt);
void fill_by_kernel(float* data, CUstream_st* stream);
bool client_is_there();
void write(std::span<const std::byte> bytes);
template <class... What>
void use(What&&...) {}
template <class Function>
void post_to_loop(Function) {}
inline void CHECK(bool) {}

}  // namespace snippets
