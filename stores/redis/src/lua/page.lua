-- Records in the order in which they were last written: up to ARGV[7] of those after revision ARGV[5], and what was
-- removed after revision ARGV[6]. One page after the other makes a whole listing, for a record that changes meanwhile
-- comes again. What is deleted by hand meanwhile does not, so every page has the current `meta`.
local found, gone = {}, {}
local names = redis.call('ZRANGEBYSCORE', INDEX, '(' .. ARGV[5], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[7])
for i = 1, #names, 2 do
  local version, value = fetch(PREFIX .. names[i])
  if version then
    for _, part in ipairs({names[i], names[i + 1], version, value}) do found[#found + 1] = part end
  else
    -- It was deleted by hand.
    revision = revision + 1
    redis.call('HSET', STORE, 'revision', digits(revision))
    redis.call('ZREM', INDEX, names[i])
    redis.call('ZADD', REMOVED, digits(revision), names[i])
    gone[#gone + 1] = names[i]
    gone[#gone + 1] = digits(revision)
  end
end
local removed = redis.call('ZRANGEBYSCORE', REMOVED, '(' .. ARGV[6], '+inf', 'WITHSCORES')
for i = 1, #removed do gone[#gone + 1] = removed[i] end
local forgotten = redis.call('HGET', STORE, 'forgotten') or '0'
local version, value = fetch(PREFIX .. 'meta')
local meta = {version or '', value or ''}
return {'ok', generation, digits(revision), forgotten, digits(#names / 2), names[#names] or ARGV[5], found, gone, meta}
