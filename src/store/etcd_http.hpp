// etcd http: exchanges and streams of HTTP by libcurl, on a store's thread.
#pragma once

#include <curl/curl.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/detail/native_only.hpp"
#include "store/store_thread.hpp"

namespace manyworlds::inline v0::detail::etcd {

/// The functions of libcurl that are called. It is looked for at run time, so that a
/// program starts on machines without it.
struct curl_library {
  /// Errors: std::runtime_error saying what is missing.
  curl_library();

  decltype(&::curl_global_init) global_init;
  decltype(&::curl_easy_init) easy_init;
  decltype(&::curl_easy_cleanup) easy_cleanup;
  // Parentheses: a macro has the name of this one.
  decltype(&(::curl_easy_setopt)) easy_setopt;
  decltype(&(::curl_easy_getinfo)) easy_getinfo;
  decltype(&::curl_easy_strerror) easy_strerror;
  decltype(&::curl_easy_pause) easy_pause;
  decltype(&::curl_slist_append) slist_append;
  decltype(&::curl_slist_free_all) slist_free_all;
  decltype(&::curl_multi_init) multi_init;
  decltype(&::curl_multi_cleanup) multi_cleanup;
  decltype(&::curl_multi_add_handle) multi_add_handle;
  decltype(&::curl_multi_remove_handle) multi_remove_handle;
  decltype(&::curl_multi_perform) multi_perform;
  decltype(&::curl_multi_poll) multi_poll;
  decltype(&::curl_multi_wakeup) multi_wakeup;
  decltype(&::curl_multi_info_read) multi_info_read;
};

/// Certificates, as `etcd_store_options` has them.
struct http_certificates {
  std::string ca_file;
  std::string certificate_file;
  std::string key_file;
};

struct http_request {
  std::string url;
  std::string body;  ///< empty: GET
  std::string token;
  duration connect_limit{};
  duration limit{};  ///< zero: none, for a stream
  std::size_t most_bytes = 0;
};

/// Why there is no answer.
enum class http_trouble : unsigned char {
  none,
  unreachable,
  certificate,  ///< one side does not accept the other's, or a file of it is bad
  not_http,
  too_long,
};

struct http_reply {
  http_trouble trouble = http_trouble::none;
  std::string reason;
  /// Something of the request may have reached the server.
  bool was_sent = false;
  long status = 0;
  std::string body;
};

/// All transfers of one store. Thread: the store's, but for `wake`.
class http_client final : public store_sleep {
 public:
  explicit http_client(http_certificates certificates);
  http_client(const http_client&) = delete;
  http_client& operator=(const http_client&) = delete;
  /// Precondition: no transfer is left.
  ~http_client();

  void sleep(duration at_most) noexcept override;
  void wake() noexcept override { curl_.multi_wakeup(multi_); }

 private:
  friend class http_transfer;
  void end_transfers() noexcept;

  const curl_library curl_;
  const http_certificates certificates_;
  CURLM* multi_;
  bool has_news_ = false;
};

/// One request and its answer. Lifetime: it ends when it is destroyed.
class http_transfer {
 public:
  http_transfer(const http_transfer&) = delete;
  http_transfer& operator=(const http_transfer&) = delete;

 protected:
  http_transfer(http_client& client, http_request request);
  ~http_transfer() { stop(); }

  void start();
  void stop() noexcept;
  void go_on() noexcept;
  [[nodiscard]] bool is_running() const noexcept { return is_running_; }
  [[nodiscard]] http_reply& reply() noexcept { return reply_; }
  [[nodiscard]] std::size_t most_bytes() const noexcept { return request_.most_bytes; }

 private:
  friend class http_client;
  /// Takes bytes of the body; false pauses the transfer, which gives them again.
  virtual bool take(std::string_view bytes) = 0;
  virtual void ended() noexcept = 0;

  template <class Value>
  void set(CURLoption option, Value value);
  void set_certificates();
  void finish(CURLcode code) noexcept;
  static std::size_t on_bytes(char* bytes, std::size_t size, std::size_t count,
                              void* self) noexcept;
  static int before_request(void* self, char*, char*, int, int) noexcept;

  http_client& client_;
  http_request request_;
  http_reply reply_;
  CURL* easy_ = nullptr;
  curl_slist* headers_ = nullptr;
  char error_[CURL_ERROR_SIZE] = {};
  bool is_running_ = false;
  bool is_too_long_ = false;
};

/// Awaits the whole answer of one request.
class MANYWORLDS_MUST_AWAIT http_exchange final : public native_only, http_transfer {
 public:
  http_exchange(http_client& client, http_request request)
      : http_transfer(client, std::move(request)) {}

  bool await_ready() const noexcept { return false; }
  void await_start(continuation& k) {
    waiter_ = &k;
    start();
  }
  bool await_cancel() noexcept {
    if (!is_running()) return false;
    stop();
    return true;
  }
  bool await_must_resume() const noexcept { return true; }
  http_reply await_resume() { return std::move(reply()); }

 private:
  bool take(std::string_view bytes) override {
    reply().body += bytes;
    return true;
  }
  void ended() noexcept override { waiter_->resume(); }

  continuation* waiter_ = nullptr;
};

/// An answer that comes line by line. What is not read holds the server up.
class http_stream final : http_transfer {
 public:
  http_stream(http_client& client, http_request request)
      : http_transfer(client, std::move(request)) {
    start();
  }

  /// Waits for the next line, at most this long. Nothing: there was none, or the stream
  /// has ended.
  task<std::optional<std::string>> next(duration at_most);
  [[nodiscard]] bool has_ended() const noexcept { return !is_running(); }
  /// Returns why it has ended, and in the body what was no line.
  [[nodiscard]] http_reply& end() noexcept { return reply(); }

 private:
  bool take(std::string_view bytes) override;
  void ended() noexcept override { arrived_.set(); }
  [[nodiscard]] std::optional<std::string> line();

  event arrived_;
  std::size_t searched_ = 0;
  bool is_paused_ = false;
};

}  // namespace manyworlds::inline v0::detail::etcd
