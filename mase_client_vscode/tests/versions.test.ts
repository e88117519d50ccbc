/** Which server is used: the installed one unless the extension brings a newer one. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compare, objection, versionIn } from '../src/versions';

test('releases are compared as numbers, and a missing place is a zero', () => {
  const older = ['0.1', '0.2', '0.2.1', '0.10', '0.10.1', '1.0', '1.0.0.1', '10'];
  assert.deepEqual(older.toReversed().sort(compare), older);
  assert.equal(compare('0.1', '0.1.0'), 0);
});

test('what follows a release makes it no other one', () => {
  assert.equal(compare('0.2.0rc1', '0.2.0'), 0);
  assert.equal(compare('0.2.0.dev3+g1234', '0.2.0'), 0);
});

/** What is said against a server of that version, where the extension brings 0.10.0. */
const against = (version: string, { source = false, complete = true } = {}) => objection({ version, source, complete }, '0.10.0');

test('an installed server is used if it is as new as the one that the extension brings', () => {
  assert.equal(against('0.9.9'), 'newer than the installed 0.9.9');
  assert.equal(against('0.10.0'), undefined);
  assert.equal(against('0.11.0'), undefined);
});

test("one's own checkout is used however old it is", () => {
  assert.equal(against('0.0.1', { source: true }), undefined);
});

test('a server without the packages that it needs is not used', () => {
  assert.equal(against('0.11.0', { complete: false }), 'because packages are missing beside the installed 0.11.0');
  assert.equal(against('0.0.1', { source: true, complete: false }), 'because packages are missing beside the installed 0.0.1');
});

test('a version that is none is older than all others', () => {
  assert.equal(against(''), 'newer than the installed ');
  assert.equal(against('unknown'), 'newer than the installed unknown');
});

test('the version is read from the text of the package', () => {
  assert.equal(versionIn('"""Docs."""\n\n__version__ = "0.3.1"\n'), '0.3.1');
  assert.equal(versionIn('nothing'), '');
});
