-- What wrk sends and how it counts. Each thread reads the requests of its own file, one
-- after the other, and writes down what it learns in files of its own. The working
-- directory holds them all:
--
--   requests.<thread>   records: seven digits of length, then as many bytes of HTTP
--   ids.<thread>        the order id and the out_trade_no of every create that was answered with success
--   seconds.<thread>    "<second> <total> <answer>", totals since the beginning, when a
--                       second has ended; "end" when the requests have run out
--   result              JSON, written at the end: the file is there when it is whole

local ffi = require("ffi")
ffi.cdef("struct octopay_tv { long s, us; }; int gettimeofday(struct octopay_tv *tv, void *tz);")

local answersMax = 64 -- different answers that are counted; as in package report

-- In the main thread.

local threads = {}

function setup(thread)
   threads[#threads + 1] = thread
   thread:set("number", #threads)
end

function done(summary, latency)
   local total, sent, ids, unreadable, empty = {}, 0, 0, 0, 0
   for _, thread in ipairs(threads) do
      sent = sent + thread:get("sent")
      ids = ids + thread:get("ids")
      unreadable = unreadable + thread:get("unreadable")
      empty = empty + thread:get("empty")
      local f = assert(io.open("seconds." .. thread:get("number"), "a")) -- flushed, and not written any more
      for answer in thread:get("answers"):gmatch("[^\n]+") do
         local n = thread:get("n " .. answer)
         total[answer] = (total[answer] or 0) + n
         assert(f:write(thread:get("second"), " ", n, " ", answer, "\n"))
      end
      assert(f:close())
   end
   local parts = {}
   for answer, n in pairs(total) do
      parts[#parts + 1] = string.format('"%s":%d', answer, n)
   end
   local e = summary.errors
   local f = assert(io.open("result.part", "w"))
   assert(f:write(string.format(
      '{"duration_us":%.0f,"answered":%.0f,"sent":%.0f,"ids":%.0f,"unreadable":%.0f,"empty":%.0f,"by_answer":{%s},'
         .. '"connect":%.0f,"read":%.0f,"write":%.0f,"late":%.0f,"latency_us":[%.0f,%.0f,%.0f,%.0f,%.0f]}',
      summary.duration, summary.requests, sent, ids, unreadable, empty, table.concat(parts, ","),
      e.connect, e.read, e.write, e.timeout,
      latency:percentile(50), latency:percentile(90), latency:percentile(99), latency:percentile(99.9), latency.max)))
   assert(f:close())
   assert(os.rename("result.part", "result"))
end

-- In each thread. What done reads must be global.

sent, ids, unreadable, empty, answers, second = 0, 0, 0, 0, "", 0

local requests, idFile, secondFile, tv, start
local verified, ended = false, false
local known = 0
local plain = {} -- by status: the name of its counter

function init()
   requests = assert(io.open("requests." .. number, "rb"))
   requests:setvbuf("full", 1048576)
   idFile = assert(io.open("ids." .. number, "w"))
   idFile:setvbuf("full", 65536)
   secondFile = assert(io.open("seconds." .. number, "w"))
   tv = ffi.new("struct octopay_tv")
end

local function now()
   ffi.C.gettimeofday(tv, nil)
   return tonumber(tv.s) + tonumber(tv.us) / 1e6
end

local function read()
   local length = requests:read(7)
   if not length then
      return nil
   end
   return requests:read(tonumber(length))
end

-- The first call of the first thread is wrk's own, to see whether the request is HTTP.
function request()
   if number == 1 and not verified then
      verified = true
      local first = read()
      requests:seek("set", 0)
      return first
   end
   start = start or now()
   local text = not ended and read()
   if not text then
      if not ended then
         ended = true
         empty = 1
         assert(secondFile:write("end\n"))
         secondFile:flush()
         wrk.thread:stop()
      end
      return "" -- nothing is sent
   end
   sent = sent + 1
   return text
end

local function count(answer)
   local counter = "n " .. answer
   if not _G[counter] then
      if known >= answersMax and answer ~= "other" then
         return count("other")
      end
      known = known + 1
      answers = answers .. answer .. "\n"
      _G[counter] = 0
   end
   return counter
end

local function roll(at)
   for answer in answers:gmatch("[^\n]+") do
      assert(secondFile:write(second, " ", _G["n " .. answer], " ", answer, "\n"))
   end
   secondFile:flush()
   second = at
end

function response(status, headers, body)
   local at = math.floor(now() - start)
   if at > second then
      roll(at)
   end
   local counter = plain[status]
   if not counter then
      local code = status >= 300 and body:match('"code":"([%w_]+)"')
      if code and #code <= 64 then
         counter = count(status .. " " .. code)
      else
         counter = count(tostring(status))
         if status < 300 then
            plain[status] = counter
         end
      end
   end
   _G[counter] = _G[counter] + 1
   -- A create: made, or made before. Reads have neither.
   if status == 201 or (status == 200 and headers["Idempotent-Replayed"]) then
      local id = body:match('^{"order_id":"(%d+)"')
      local no = body:match('"out_trade_no":"([^"\n]+)"')
      if id and no then
         ids = ids + 1
         assert(idFile:write(id, " ", no, "\n"))
      else
         unreadable = unreadable + 1
      end
   end
end
