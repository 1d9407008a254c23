-- What wrk sends and how it counts. Each thread reads the requests of its own file, one
-- after the other, and writes down what it learns in files of its own. The working
-- directory holds them all:
--
--   requests.<thread>   records: seven digits of length, then as many bytes of HTTP
--   answers.<thread>    the answers of success that are to be judged, which is not done here:
--                       "<second> <status> <replayed> <length>" and a line feed, as many bytes
--                       of the body, a line feed
--   seconds.<thread>    "<second> <total> <answer>", totals since the beginning, when a
--                       second has ended; "end" when the requests have run out
--   result              JSON, written at the end: the file is there when it is whole

local ffi = require("ffi")
ffi.cdef("struct octopay_tv { long s, us; }; int gettimeofday(struct octopay_tv *tv, void *tz);")

local answersMax = 64 -- different answers that are counted; as in package report
local bodyMax -- bytes of a body that are judged

-- In the main thread.

local threads = {}

function setup(thread)
   threads[#threads + 1] = thread
   thread:set("number", #threads)
end

function done(summary, latency)
   local total, sent, kept, empty = {}, {}, 0, 0
   for _, thread in ipairs(threads) do
      sent[#sent + 1] = string.format("%.0f", thread:get("sent"))
      kept = kept + thread:get("kept")
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
      '{"duration_us":%.0f,"answered":%.0f,"sent_by":[%s],"kept":%.0f,"empty":%.0f,"by_answer":{%s},'
         .. '"connect":%.0f,"read":%.0f,"write":%.0f,"late":%.0f,"latency_us":[%.0f,%.0f,%.0f,%.0f,%.0f]}',
      summary.duration, summary.requests, table.concat(sent, ","), kept, empty, table.concat(parts, ","),
      e.connect, e.read, e.write, e.timeout,
      latency:percentile(50), latency:percentile(90), latency:percentile(99), latency:percentile(99.9), latency.max)))
   assert(f:close())
   assert(os.rename("result.part", "result"))
end

-- In each thread. What done reads must be global.

sent, kept, empty, answers, second = 0, 0, 0, "", 0

local writes -- whether there are creates among the requests
local requests, answerFile, secondFile, tv, start
local verified, ended = false, false
local known = 0
local plain = {} -- by status: the name of its counter
local heads = {} -- by status and whether it was replayed: what an answer of this second begins with

function init(args)
   writes = args[1] == "writes"
   bodyMax = tonumber(args[2])
   requests = assert(io.open("requests." .. number, "rb"))
   requests:setvbuf("full", 1048576)
   answerFile = assert(io.open("answers." .. number, "w"))
   answerFile:setvbuf("full", 1048576)
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
   heads = {}
end

-- Keeps an answer of success to be judged, unless it is clear that it is that of a read.
local function keep(status, headers, body)
   local replayed = 0
   if status == 200 then
      if (headers["Idempotent-Replayed"] or headers["idempotent-replayed"]) == "true" then
         replayed = 1
      elseif body:find('^%s*{%s*"data"') or not writes and body:find('^%s*{%s*"order_id"') then
         return
      end
   end
   local head = heads[status * 2 + replayed]
   if not head then
      head = second .. " " .. status .. " " .. replayed .. " "
      heads[status * 2 + replayed] = head
   end
   if #body > bodyMax then
      body = body:sub(1, bodyMax)
   end
   kept = kept + 1
   assert(answerFile:write(head, #body, "\n", body, "\n"))
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
   if status < 300 then
      keep(status, headers, body)
   end
end
