-- Swaps the records KEYS[4…], each for itself. For each there are four arguments after ARGV[4]: its name, the version
-- that must be there (empty: nothing), 'set' or 'del', and the value.
local REMOVALS_KEPT = 1000
local tag = string.sub(ARGV[1], 1, 10)
local before = revision
local outcomes, news = {}, {}
local now = {}
-- All is read before anything is written, so that a script that fails has changed nothing.
redis.call('ZCARD', INDEX)
redis.call('ZCARD', REMOVED)
local upto = noded()
for i = 4, #KEYS do
  local version, value = fetch(KEYS[i])
  now[i] = {version, value}
end
for i = 4, #KEYS do
  local at = 5 + (i - 4) * 4
  local name, expected, verb, value = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local key, found = KEYS[i], now[i][1]
  if (found or '') ~= expected then
    outcomes[#outcomes + 1] = {'lost', found or '', now[i][2] or ''}
    if found and not redis.call('ZSCORE', INDEX, name) then
      revision = revision + 1
      redis.call('ZADD', INDEX, digits(revision), name)
      if is_node(name) then redis.call('ZADD', NODES, '0', name) end
    end
  else
    revision = revision + 1
    local version = digits(revision) .. '.' .. tag
    if verb == 'set' then
      if found and string.sub(found, 1, 4) == 'raw.' then redis.call('DEL', key) end
      redis.call('HSET', key, 'version', version, 'value', value)
      redis.call('ZADD', INDEX, digits(revision), name)
      if not found then redis.call('ZREM', REMOVED, name) end
      if is_node(name) then redis.call('ZADD', NODES, '0', name) end
    else
      redis.call('DEL', key)
      redis.call('ZREM', INDEX, name)
      if is_node(name) then redis.call('ZREM', NODES, name) end
      redis.call('ZADD', REMOVED, digits(revision), name)
      local excess = redis.call('ZCARD', REMOVED) - REMOVALS_KEPT
      if excess > 0 then
        local oldest = redis.call('ZRANGE', REMOVED, excess - 1, excess - 1, 'WITHSCORES')
        redis.call('HSET', STORE, 'forgotten', oldest[2])
        redis.call('ZREMRANGEBYRANK', REMOVED, 0, excess - 1)
      end
    end
    outcomes[#outcomes + 1] = {'applied', version}
    local size = verb == 'set' and #value or -1
    news[#news + 1] = #name .. ' ' .. version .. ' ' .. size .. '\n' .. name .. (verb == 'set' and value or '')
  end
end
if revision > before then
  redis.call('HSET', STORE, 'revision', digits(revision))
  -- A set that lacked something before still lacks it.
  if upto == before then redis.call('ZADD', NODES, digits(revision), UPTO) end
  -- A client that misses a message sees that the next one does not follow the last one it has.
  local head = generation .. ' ' .. digits(before) .. ' ' .. digits(revision) .. ' ' .. tag .. ' ' .. #news .. '\n'
  redis.call('PUBLISH', PREFIX .. 'events', head .. table.concat(news))
end
return {'ok', generation, digits(revision), outcomes}
