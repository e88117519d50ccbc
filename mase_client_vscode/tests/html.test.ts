/** The HTML of a page: what it may do, and that no text of ours can end its place. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { html } from '../src/webview/html';

const parts = { title: 'Graph', script: 'x:/graph.js', style: 'x:/graph.css', source: "'self'", nonce: 'abc' };
const policy = (text: string) => /Content-Security-Policy" content="([^"]*)"/.exec(text)?.[1];

test('a page may run its own script and use its own styles, and nothing else', () => {
  assert.equal(policy(html(parts)), "default-src 'none'; script-src 'nonce-abc'; style-src 'self'");
});

test('what a page needs beyond that is named by it', () => {
  assert.match(policy(html({ ...parts, allow: ['worker-src blob:'] })) ?? '', /; worker-src blob:$/);
});

test('a title is a text, not HTML', () => {
  const told = html({ ...parts, title: '</title><script>"&' });
  assert.match(told, /<title>&lt;\/title&gt;&lt;script&gt;&quot;&amp;<\/title>/);
});
