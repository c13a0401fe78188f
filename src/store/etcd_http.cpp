#include "store/etcd_features.hpp"

#if MANYWORLDS_HAS_ETCD

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "store/etcd_http.hpp"

namespace manyworlds::inline v0::detail::etcd {

namespace {

// From here on a stream that is not read is held up.
constexpr std::size_t most_unread = std::size_t{1} << 20;

template <class Function>
void find_in(void* library, const char* name, Function*& f) {
  f = reinterpret_cast<Function*>(dlsym(library, name));
  if (f) return;
  throw std::runtime_error(std::string("etcd store: libcurl has no ") + name +
                           ": install libcurl 7.68 or later");
}

long milliseconds_of(duration span) noexcept {
  return static_cast<long>(std::chrono::ceil<std::chrono::milliseconds>(span).count());
}

/// A connection that breaks during a handshake is no wrong certificate.
bool is_handshake_broken(std::string_view error) noexcept {
  return error.find("SSL_ERROR_SYSCALL") != error.npos ||
         error.find("Connection reset") != error.npos ||
         error.find("unexpected eof") != error.npos;
}

http_trouble trouble_of(CURLcode code, std::string_view error) noexcept {
  switch (code) {
    case CURLE_OK:
      return http_trouble::none;
    case CURLE_UNSUPPORTED_PROTOCOL:  // an answer without a head
    case CURLE_WEIRD_SERVER_REPLY:
      return http_trouble::not_http;
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
      return http_trouble::certificate;
    case CURLE_SSL_CONNECT_ERROR:
      return is_handshake_broken(error) ? http_trouble::unreachable
                                        : http_trouble::certificate;
    case CURLE_RECV_ERROR:
      // By TLS 1.3 a server refuses a client's certificate after the handshake.
      return error.find("alert") != error.npos ? http_trouble::certificate
                                               : http_trouble::unreachable;
    default:
      return http_trouble::unreachable;
  }
}

}  // namespace

curl_library::curl_library() {
  // It is never closed: threads of its resolver may outlive every store.
  void* library = nullptr;
  std::string error;
  for (const char* const name : {"libcurl.so.4", "libcurl-gnutls.so.4"}) {
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library) break;
    const char* const said = dlerror();
    if (error.empty() && said) error = said;
  }
  if (!library)
    throw std::runtime_error("etcd store: libcurl cannot be loaded (install libcurl4): " +
                             error);
  find_in(library, "curl_global_init", global_init);
  find_in(library, "curl_easy_init", easy_init);
  find_in(library, "curl_easy_cleanup", easy_cleanup);
  find_in(library, "curl_easy_setopt", easy_setopt);
  find_in(library, "curl_easy_getinfo", easy_getinfo);
  find_in(library, "curl_easy_strerror", easy_strerror);
  find_in(library, "curl_easy_pause", easy_pause);
  find_in(library, "curl_slist_append", slist_append);
  find_in(library, "curl_slist_free_all", slist_free_all);
  find_in(library, "curl_multi_init", multi_init);
  find_in(library, "curl_multi_cleanup", multi_cleanup);
  find_in(library, "curl_multi_add_handle", multi_add_handle);
  find_in(library, "curl_multi_remove_handle", multi_remove_handle);
  find_in(library, "curl_multi_perform", multi_perform);
  find_in(library, "curl_multi_poll", multi_poll);
  find_in(library, "curl_multi_wakeup", multi_wakeup);
  find_in(library, "curl_multi_info_read", multi_info_read);
  // Before 7.84 this is not safe beside itself.
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  if (global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
    throw std::runtime_error("etcd store: libcurl cannot be initialised");
}

http_client::http_client(http_certificates certificates)
    : certificates_(std::move(certificates)), multi_(curl_.multi_init()) {
  if (!multi_) throw std::bad_alloc();
}

http_client::~http_client() { curl_.multi_cleanup(multi_); }

void http_client::sleep(duration at_most) noexcept {
  int running = 0;
  has_news_ = false;
  curl_.multi_perform(multi_, &running);
  end_transfers();
  if (has_news_) return;
  curl_.multi_poll(multi_, nullptr, 0, static_cast<int>(milliseconds_of(at_most)),
                   nullptr);
  curl_.multi_perform(multi_, &running);
  end_transfers();
}

void http_client::end_transfers() noexcept {
  int left = 0;
  while (CURLMsg* const message = curl_.multi_info_read(multi_, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    void* transfer = nullptr;
    curl_.easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
    MW_ASSERT(transfer, "each handle belongs to a transfer");
    has_news_ = true;
    static_cast<http_transfer*>(transfer)->finish(message->data.result);
  }
}

http_transfer::http_transfer(http_client& client, http_request request)
    : client_(client), request_(std::move(request)) {}

template <class Value>
void http_transfer::set(CURLoption option, Value value) {
  client_.curl_.easy_setopt(easy_, option, value);
}

void http_transfer::start() {
  MW_ASSERT(!easy_, "a transfer is started once");
  easy_ = client_.curl_.easy_init();
  if (!easy_) throw std::bad_alloc();
  const auto header = [this](const std::string& line) {
    headers_ = client_.curl_.slist_append(headers_, line.c_str());
  };
  if (!request_.body.empty()) {
    header("Content-Type: application/json");
    // It would wait for leave to send a large body.
    header("Expect:");
    set(CURLOPT_POSTFIELDS, request_.body.data());
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request_.body.size()));
  }
  if (!request_.token.empty()) header("Authorization: " + request_.token);
  set(CURLOPT_HTTPHEADER, headers_);
  set(CURLOPT_URL, request_.url.c_str());
  set(CURLOPT_PRIVATE, static_cast<void*>(this));
  set(CURLOPT_ERRORBUFFER, &error_[0]);
  set(CURLOPT_WRITEFUNCTION, &http_transfer::on_bytes);
  set(CURLOPT_WRITEDATA, static_cast<void*>(this));
  set(CURLOPT_PREREQFUNCTION, &http_transfer::before_request);
  set(CURLOPT_PREREQDATA, static_cast<void*>(this));
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  // Otherwise the environment names a proxy (law 12).
  set(CURLOPT_PROXY, "");
  set(CURLOPT_NOSIGNAL, 1L);
  // Otherwise a name that is being looked up would hold up the thread at the end.
  set(CURLOPT_QUICK_EXIT, 1L);
  set(CURLOPT_CONNECTTIMEOUT_MS, milliseconds_of(request_.connect_limit));
  set(CURLOPT_TIMEOUT_MS, milliseconds_of(request_.limit));
  // A host that has gone is noticed also by a stream that is silent.
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  set(CURLOPT_TCP_KEEPIDLE, 5L);
  set(CURLOPT_TCP_KEEPINTVL, 2L);
  set_certificates();
  is_running_ = true;
  client_.curl_.multi_add_handle(client_.multi_, easy_);
}

void http_transfer::set_certificates() {
  const http_certificates& files = client_.certificates_;
  if (!files.ca_file.empty()) set(CURLOPT_CAINFO, files.ca_file.c_str());
  if (!files.certificate_file.empty())
    set(CURLOPT_SSLCERT, files.certificate_file.c_str());
  if (!files.key_file.empty()) set(CURLOPT_SSLKEY, files.key_file.c_str());
}

void http_transfer::stop() noexcept {
  is_running_ = false;
  if (!easy_) return;
  client_.curl_.multi_remove_handle(client_.multi_, easy_);
  client_.curl_.easy_cleanup(std::exchange(easy_, nullptr));
  client_.curl_.slist_free_all(std::exchange(headers_, nullptr));
}

void http_transfer::go_on() noexcept {
  if (easy_) client_.curl_.easy_pause(easy_, CURLPAUSE_CONT);
}

void http_transfer::finish(CURLcode code) noexcept {
  MW_ASSERT(is_running_, "a transfer ends once");
  client_.curl_.easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &reply_.status);
  if (is_too_long_) {
    reply_.trouble = http_trouble::too_long;
    reply_.reason = "the answer is too long";
  } else if (code != CURLE_OK) {
    reply_.reason = error_[0] ? &error_[0] : client_.curl_.easy_strerror(code);
    reply_.trouble = trouble_of(code, reply_.reason);
  }
  stop();
  ended();
}

std::size_t http_transfer::on_bytes(char* bytes, std::size_t size, std::size_t count,
                                    void* self) noexcept {
  auto& transfer = *static_cast<http_transfer*>(self);
  transfer.client_.has_news_ = true;
  const std::string_view part(bytes, size * count);
  if (transfer.reply_.body.size() + part.size() > transfer.request_.most_bytes) {
    transfer.is_too_long_ = true;
    return 0;
  }
  try {
    return transfer.take(part) ? part.size() : CURL_WRITEFUNC_PAUSE;
  } catch (const std::bad_alloc&) {
    transfer.is_too_long_ = true;
    return 0;
  }
}

/// Is called each time before a request is sent, on which connection whatsoever. libcurl
/// repeats by itself what a kept connection did not answer; that might happen twice.
int http_transfer::before_request(void* self, char*, char*, int, int) noexcept {
  auto& transfer = *static_cast<http_transfer*>(self);
  if (std::exchange(transfer.reply_.was_sent, true)) return CURL_PREREQFUNC_ABORT;
  return CURL_PREREQFUNC_OK;
}

bool http_stream::take(std::string_view bytes) {
  // A line may be longer than what may be unread.
  const bool has_line = reply().body.find('\n', searched_) != std::string::npos;
  is_paused_ = has_line && reply().body.size() > most_unread;
  if (is_paused_) return false;
  reply().body += bytes;
  arrived_.set();
  return true;
}

std::optional<std::string> http_stream::line() {
  std::string& body = reply().body;
  const std::size_t end = body.find('\n', searched_);
  if (end == std::string::npos) {
    searched_ = body.size();
    return std::nullopt;
  }
  std::string first = body.substr(0, end);
  body.erase(0, end + 1);
  searched_ = 0;
  return first;
}

task<std::optional<std::string>> http_stream::next(duration at_most) {
  std::optional<std::string> first = line();
  while (!first && is_running()) {
    arrived_.reset();
    if (std::exchange(is_paused_, false)) go_on();
    try {
      co_await within(arrived_.wait(), at_most);
    } catch (const timed_out&) {
      co_return std::nullopt;
    }
    first = line();
  }
  co_return first;
}

}  // namespace manyworlds::inline v0::detail::etcd

#endif  // MANYWORLDS_HAS_ETCD
