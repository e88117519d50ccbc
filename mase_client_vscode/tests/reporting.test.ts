import assert from 'node:assert/strict';
import { test } from 'node:test';
import { reportArguments } from '../src/reporting';
import { SlowLines, WIDTH } from '../src/slow';

const MADE = ['report', '--json', '--about', '-o', '/r.zip', '--', '/a', '/b'];

test('the server that makes a report is started as the one that serves', () => {
  const cases: [string[], string[]][] = [
    [['-P', '-m', 'mase_server', 'lsp'], ['-P', '-m', 'mase_server']],
    [['-P', '/ext/start.py', 'lsp', '--log', 'debug'], ['-P', '/ext/start.py']],
    [['lsp', 'mase-server', 'lsp'], ['lsp', 'mase-server']],
  ];
  for (const [args, kept] of cases) assert.deepEqual(reportArguments(args, '/r.zip', ['/a', '/b']), [...kept, ...MADE]);
});

test('a command that does not name lsp cannot be asked for a report', () => {
  assert.equal(reportArguments(['serve.sh'], '/r.zip', []), undefined);
});

test('a slow line is there until its trace is over, and is remembered until the next one', () => {
  const lines = new SlowLines();
  lines.traced('a', { state: 'queued' });
  assert.deepEqual([lines.now('a'), lines.last('a')], [undefined, undefined]);
  const width = (text: string) => text.padEnd(WIDTH, '\u00a0');
  lines.told('a', 'a.py: 2.0 s: constructing a model');
  lines.traced('a', { state: 'tracing' });
  lines.traced('b', { state: 'ready' });
  assert.deepEqual([lines.now('a'), lines.last('a')], [width('a.py: \u2007\u20072.0 s: constructing a model'), undefined]);
  lines.told('a', 'a.py: 12.0 s: running it (line 3)');
  assert.equal(lines.now('a'), width('a.py: \u200712.0 s: running it (line 3)'));
  lines.told('a', `a.py: 12.0 s: looking for inputs of ${'A'.repeat(99)} (give them with # mase:)`);
  assert.equal(lines.now('a')?.length, WIDTH, 'the status item does not change its width');
  lines.told('a', 'a.py: 3.0 s, of which 2.9 s constructing a model');
  assert.equal(lines.now('a'), undefined, 'what took longest is over');
  lines.traced('a', { state: 'ready' });
  assert.deepEqual([lines.now('a'), lines.last('a')], [undefined, 'a.py: 3.0 s, of which 2.9 s constructing a model']);
  lines.traced('a', { state: 'queued' });
  assert.deepEqual([lines.now('a'), lines.last('a')], [undefined, undefined]);
});
